"""Options that are stored in files: credentials, and the profiles of clusters."""
