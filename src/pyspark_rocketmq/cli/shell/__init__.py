"""The interactive shell of ``pyspark-rocketmq sql``."""
