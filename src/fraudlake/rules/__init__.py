"""Rules as data: declares row patterns and thresholds over an account's transactions, in event time."""
