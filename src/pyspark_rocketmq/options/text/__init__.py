"""From the text of an option to its value."""
