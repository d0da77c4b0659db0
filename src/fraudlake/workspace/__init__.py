"""The workspace: commands that ask or tell a Databricks workspace through its API; none of them needs Spark."""
