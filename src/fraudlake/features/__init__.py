"""Features: computes the figures of a transaction that models learn from, in a history and in a stream."""
