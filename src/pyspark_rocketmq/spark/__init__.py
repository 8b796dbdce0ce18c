"""RocketMQ as a Spark data source: batch and streaming reads."""
