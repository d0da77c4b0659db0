"""The probe: checks the package's assumptions about a workspace, on its compute and in Spark's Python processes."""
