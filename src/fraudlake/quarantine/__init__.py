"""Quarantine: what is in it, and how mended rows leave it."""
