"""End-to-end tests: a real API server, the operator, real sidecars and stand-in engines, all as processes."""
