"""Sources and sinks of rows: one module per connector."""
