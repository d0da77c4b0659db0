"""Review: the events of people, and what they amount to: cases, merges, and the items of queues with their states."""
