"""The command line's functions beyond the client: diagnosis, and offsets between Spark and RocketMQ."""
