"""Keyed rows: the rows of a stream in buckets by the hash of their key, with their order and their state."""
