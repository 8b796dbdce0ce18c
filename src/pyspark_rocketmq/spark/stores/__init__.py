"""Rows and offsets in one transaction of the user's store."""
