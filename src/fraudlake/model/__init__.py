"""The model's life cycle: trains, registers and scores models, and measures quality and drift."""
