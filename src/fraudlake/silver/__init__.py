"""Silver: what is valid in bronze, what is not and why, and the alerts."""
