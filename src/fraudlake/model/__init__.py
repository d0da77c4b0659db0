"""The model's life: features, training, registry, scoring, quality and drift."""
