"""Forget: accounts leave the tables, files, stream state and logs of a lake, and a scan proves it."""
