"""Tools around the lake: a simulator, plots, and checks of a workspace after a deploy."""
