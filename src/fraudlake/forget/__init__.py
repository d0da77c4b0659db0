"""Forget: removes accounts from a lake's tables, files, stream state and logs; a scan proves it."""
