"""The fleet benchmark: what hundreds of claims cost the operator, busy and idle. See ``docs/benchmarks.md``."""
