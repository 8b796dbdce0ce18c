"""What the mock broker answers to each request."""
