"""Committed ranges: commit topics, and a consumer of what they say is committed."""
