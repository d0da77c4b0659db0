"""Bronze: what landed, as it landed, with where it came from."""
