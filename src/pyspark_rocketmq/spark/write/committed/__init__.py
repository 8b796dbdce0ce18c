"""Writes whose batches are committed in a commit topic."""
