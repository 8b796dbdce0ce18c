"""Rows to stored messages."""
