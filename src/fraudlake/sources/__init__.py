"""Sources: landed files and Kafka topics, read once each."""
