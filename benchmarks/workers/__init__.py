"""Programs measured by a benchmark. Each is a separate process that runs a round on request."""
