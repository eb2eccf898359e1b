"""Stand-in for the ``sglang`` package, as the one for ``vllm`` beside it."""
