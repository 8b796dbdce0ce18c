"""The demo: orders go through RocketMQ and Spark, revenue is shown and checked to the cent."""
