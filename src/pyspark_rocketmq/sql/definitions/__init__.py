"""Definitions of tables that are made from other definitions."""
