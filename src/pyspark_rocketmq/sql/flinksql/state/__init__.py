"""Queries whose rows are taken back, as steps with state."""
