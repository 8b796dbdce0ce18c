"""Members of consumer groups: which queues they have, reading them, handing messages out."""
