"""The client for asyncio: the same requests, answers and decisions over an event loop's connections."""
