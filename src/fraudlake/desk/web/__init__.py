"""The desk's pages: requests of a browser become pages and review events."""
