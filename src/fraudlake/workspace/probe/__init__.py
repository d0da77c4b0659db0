"""The probe: what the package relies on in a workspace, asked of its compute and of Spark's Python processes."""
