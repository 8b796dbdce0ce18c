"""Connections: sockets, frames, buffers, time-outs, concurrent requests."""
