"""The model's life cycle: features, training, registry, scoring, quality and drift."""
