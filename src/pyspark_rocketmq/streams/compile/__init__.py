"""Compile the steps of a plan to Spark operators."""
