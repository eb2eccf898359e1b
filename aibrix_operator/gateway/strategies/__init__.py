"""One module a routing strategy, and the registry that finds them by name."""
