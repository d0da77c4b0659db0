"""The fast lane: a topic's transactions become a topic of alerts in milliseconds, in Spark's Real-time Mode.

It runs in an environment of its own (Spark 4.3, which Delta does not support yet), so nothing here uses a table.
"""
