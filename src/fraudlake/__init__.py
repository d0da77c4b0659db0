"""fraudlake: turns Flink's card transactions into fraud alerts and scores, on Spark and Delta Lake."""

__version__ = "0.1.0"
