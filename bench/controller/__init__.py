"""The controller benchmark: our operator and its peers over one real API server. See ``docs/benchmarks.md``."""
