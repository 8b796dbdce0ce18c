"""Commands about a cluster: topics, groups, offsets, transactions and diagnosis."""
