"""Silver: valid transactions, quarantined rows with their reasons, and analysts' verdicts."""
