"""What Flink SQL has and this package has not, and what to write instead."""
