"""The public API: the two APIs of RocketMQ Streams."""
