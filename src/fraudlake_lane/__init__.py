"""The fast lane: reads transactions from one topic and writes alerts to another within milliseconds.

It uses Spark's Real-time Mode, in a separate environment (Spark 4.3, which Delta does not support yet), so nothing here
uses a table.
"""
