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
    LEAST_LATENCY = "leastLatency"
    """The shortest mean time of a request in the engine, waiting included; ties by models, then by name."""
    LEAST_THROUGHPUT = "leastThroughput"
    """The fewest tokens a minute, a prompt's counted twice; ties by models, then by name."""

    @property
    def is_by_work(self) -> bool:
        """Whether it goes by what the engines' metrics tell."""
        return self in (Policy.LEAST_LATENCY, Policy.LEAST_THROUGHPUT)
