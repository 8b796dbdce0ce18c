"""Stored messages to Arrow and to objects."""
