"""Monitoring of queries: listener, lag, metrics, query log."""
