"""Let many language models share few GPUs on Kubernetes."""

__version__ = "0.8.0"
