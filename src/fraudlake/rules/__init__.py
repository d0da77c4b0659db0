"""Rules as data: row patterns and thresholds over an account's transactions, in event time."""
