"""Detection: the fraud rules, evaluated by a stateful stream of buckets of accounts."""
