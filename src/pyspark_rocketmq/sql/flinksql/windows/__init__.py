"""Windows: as tables, as groups, and as the hidden column of rows."""
