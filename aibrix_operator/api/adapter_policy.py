"""How Pods are chosen for adapters. Apart from the contract's models, so that a command line can name them cheaply."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """The operator's own setting, for all adapters."""

    LEAST_ADAPTERS = "leastAdapters"
    """The fewest models on the Pod, ties by name."""
    BIN_PACK = "binPack"
    """The most models on the Pod that is not full, ties by name."""
    RANDOM = "random"
    """By a hash of adapter and Pod: spread, and the same again after a restart."""
