"""Lookups: what the lake knows of a case, an account, a payment or a key."""
