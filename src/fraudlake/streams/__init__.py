"""Streaming: micro-batches that are written exactly once."""
