"""Decisions as pure functions: no socket, no thread, no clock."""
