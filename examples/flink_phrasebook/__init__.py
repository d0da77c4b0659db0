"""The Flink phrasebook: programs and calls of Flink's documents, each as a program on Spark.

A module is an example. Its docstring says what it shows, Flink's way, Spark's way and what differs; ``DOCUMENT`` is the
document it translates, and ``PHRASES`` are rows of ``docs/reference/phrasebook.md``: Flink, Spark, what differs.
"""

import sys

from pyspark.cloudpickle import register_pickle_by_value

# Spark's Python processes do not see the clone that the examples are in, so functions travel whole.
register_pickle_by_value(sys.modules["examples"])  # type: ignore[no-untyped-call]
