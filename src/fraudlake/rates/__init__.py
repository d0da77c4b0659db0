"""Rates of exchange: reads files of them, keeps their table, and converts amounts to the base currency."""
