"""The review: the events that people write about items, and what follows from them: verdicts, cases, merges."""
