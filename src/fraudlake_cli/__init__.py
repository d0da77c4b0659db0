"""The command line: ``fraudlake COMMAND`` runs one step of the lake, or all of them in order."""
