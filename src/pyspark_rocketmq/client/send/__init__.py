"""Sending: encoding, the choice of a queue, single sends, pipelines, half messages."""
