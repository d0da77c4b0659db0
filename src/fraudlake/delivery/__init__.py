"""Delivery: sends alerts out of the lake, and records the outcome of each."""
