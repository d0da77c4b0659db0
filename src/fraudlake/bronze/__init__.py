"""Bronze: landed rows, unchanged, each with the file or topic position that it came from."""
