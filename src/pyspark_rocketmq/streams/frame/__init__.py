"""Rows on their way: DataFrames with the hidden columns that steps share, and Python steps."""
