"""Rows in a pipeline: DataFrames with hidden columns shared by steps, and Python steps."""
