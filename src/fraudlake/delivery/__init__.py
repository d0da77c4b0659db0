"""Delivery: alerts leave the lake, and what became of each is recorded."""
