"""Simulated hardware and clusters: what the operator runs against where there is no GPU."""
