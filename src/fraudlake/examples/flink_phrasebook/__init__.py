"""The Flink phrasebook: programs and calls of Flink's documents, each as a program on Spark.

A module is an example. Its docstring says what it shows, Flink's way, Spark's way and what differs; ``DOCUMENT`` is the
document it translates, and ``PHRASES`` are rows of ``docs/phrasebook.md``: call or concept, counterpart, what differs.
"""
