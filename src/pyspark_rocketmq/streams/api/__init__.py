"""What users call: the two APIs of RocketMQ Streams."""
