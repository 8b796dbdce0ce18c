"""Committed ranges: which messages of transactional writes are rows, as a commit topic says."""
