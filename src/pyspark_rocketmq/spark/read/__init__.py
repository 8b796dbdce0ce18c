"""The source: batch reader, stream reader, their partitions and schema."""
