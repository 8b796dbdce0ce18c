"""Nexmark: 23 queries over auctions, as jobs in Flink's dialect, each compared with plain Python."""
