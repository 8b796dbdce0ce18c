"""Connections: sockets, frames, buffers, time-outs, many requests at once."""
