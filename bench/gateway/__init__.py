"""The gateway beside its peers, and what its parts cost."""
