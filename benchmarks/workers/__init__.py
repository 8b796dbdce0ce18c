"""Programs that a benchmark measures, each a process of its own that does a round whenever it is told to."""
