"""Stand-in for the ``vllm`` package: a runtime agent with this folder on its PYTHONPATH starts simulated engines."""
