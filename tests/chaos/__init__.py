"""Chaos: the real steps as real processes, killed at random and at chosen points, then compared with a plain truth."""
