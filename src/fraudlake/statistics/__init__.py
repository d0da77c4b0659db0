"""Statistics: aggregates over windows of rows, tiles of a past, and histograms, for rules and features."""
