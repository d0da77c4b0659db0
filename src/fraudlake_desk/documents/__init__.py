"""Documents: files that leave the desk, such as dossiers, reports and goAML."""
