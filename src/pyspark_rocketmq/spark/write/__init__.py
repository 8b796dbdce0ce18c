"""The sink: tasks, dead letters, transactions."""
