"""Decisions while a range is pulled: which pulls to have in flight, how long to wait."""
