"""Members of consumer groups: queue assignment, reading, delivery."""
