"""Commands about a cluster: topics, groups, offsets, transactions, and what is wrong with it."""
