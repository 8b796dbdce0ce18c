"""Watching queries: listener, lag, metrics, the query log."""
