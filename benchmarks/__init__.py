"""Benchmarks against the official clients: ``make bench``, ``make bench-quick``, see docs/performance.md."""
