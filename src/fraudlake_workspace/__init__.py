"""The workspace: commands that ask a Databricks workspace or start its jobs. Only the probe needs Spark."""
