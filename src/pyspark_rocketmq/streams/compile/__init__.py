"""From the steps of a plan to Spark's operators."""
