"""Child processes, ports and locks of this machine."""
