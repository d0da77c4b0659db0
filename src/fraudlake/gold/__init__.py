"""Gold: aggregates for analysts and the risk team."""
