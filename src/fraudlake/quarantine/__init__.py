"""Quarantine: shows its rows, and moves corrected ones to silver."""
