"""Kafka: how Spark's client connects to the brokers, as a source and as a sink."""
