"""The fast lane: a topic's transactions become a topic of alerts in milliseconds, in Spark's Real-time Mode.

It runs in a separate environment (Spark 4.3, which Delta does not support yet), so nothing here uses a table.
"""
