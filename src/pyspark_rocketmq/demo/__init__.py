"""The demonstration: orders through RocketMQ and Spark to revenue on the screen, checked to the cent."""
