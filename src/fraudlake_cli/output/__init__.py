"""Output: what commands print: progress, figures and summaries, as text for a person or as JSON."""
