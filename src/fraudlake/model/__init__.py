"""The model's life cycle: computes features, trains, registers and scores models, and measures quality and drift."""
