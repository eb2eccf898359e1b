"""Entry points that a runtime agent starts."""
