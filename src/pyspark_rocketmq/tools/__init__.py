"""What the command line stands on beyond the client: examinations, and offsets between Spark and RocketMQ."""
