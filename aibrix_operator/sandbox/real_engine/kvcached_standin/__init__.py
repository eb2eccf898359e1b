"""What kvcached is to a real engine on a GPU, for a real engine without one.

``hook.py`` runs in the engine at interpreter start and starts ``keeper.py`` beside it, which keeps the engine's KV
segment and its share of a simulated card. Standard library only: both run under the vLLM environment's Python.
"""
