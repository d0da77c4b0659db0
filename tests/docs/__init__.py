"""Tests of the documentation: its site, its links and its snippets."""
