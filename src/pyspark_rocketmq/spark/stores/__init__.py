"""Rows and offsets in one transaction of a store of the user."""
