"""Detection: rules, evaluated by a stateful stream over buckets of accounts."""
