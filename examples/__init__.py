"""Examples: short programs, each of which shows one thing and prints it. ``fraudlake example --list`` lists them."""
