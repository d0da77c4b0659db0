"""The desk's pages: answers requests of browsers with pages, and writes review events from forms."""
