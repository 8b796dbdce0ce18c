"""Queries as plans: their rows, where they are written, and what Spark says of them before they start."""
