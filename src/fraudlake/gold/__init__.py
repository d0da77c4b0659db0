"""Gold: what analysts and the risk team use: aggregates, features, a model and its predictions."""
