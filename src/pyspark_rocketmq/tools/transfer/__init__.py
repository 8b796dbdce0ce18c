"""Messages as files: a topic's range is exported, and imported into a topic of any cluster."""
