"""Detection: evaluates rules in a stateful stream over buckets of accounts."""
