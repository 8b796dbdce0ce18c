"""Offsets of queues: resolving, planning and committing them, without Spark."""
