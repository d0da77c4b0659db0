"""The workspace: commands that ask a Databricks workspace or start its jobs; only the probe, inside it, needs Spark."""
