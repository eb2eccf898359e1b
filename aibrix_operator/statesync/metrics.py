"""What the layer counts. The registry is the caller's, so that a process can have several layers, and tests many."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class StatesyncMetrics:
    """All metrics of one layer. Names are part of the interface; see ``docs/statesync.md``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cycles = Counter(
            "aibrix_statesync_cycles", "Cycles that ended", ["result"], registry=registry
        )  # fmt: skip
        self.duration_s = Histogram(
            "aibrix_statesync_cycle_duration_seconds", "Time of all pulls, and of all pushes, of a cycle", ["phase"],
            registry=registry,
        )  # fmt: skip
        self.entities = Counter(
            "aibrix_statesync_entities", "Entities by what became of them", ["namespace", "op"], registry=registry
        )
        self.errors = Counter("aibrix_statesync_errors", "Steps that failed", ["namespace", "phase"], registry=registry)
        self.last_success_s = Gauge(
            "aibrix_statesync_last_success_timestamp_seconds", "When the last good cycle ended", registry=registry
        )
        self.backoff_s = Gauge(
            "aibrix_statesync_backoff_seconds", "How much later the next cycle comes because of failures",
            registry=registry,
        )  # fmt: skip
        self.snapshot_entries = Gauge(
            "aibrix_statesync_snapshot_entries", "Entries held when last looked at", ["namespace"], registry=registry
        )
        self.snapshot_bytes = Gauge(
            "aibrix_statesync_snapshot_bytes", "Bytes of the last whole push", ["namespace"], registry=registry
        )
        self.capacity_warnings = Counter(
            "aibrix_statesync_capacity_warnings", "Pushes above what is sensible", ["namespace", "kind"],
            registry=registry,
        )  # fmt: skip
        self.dirty_entities = Gauge(
            "aibrix_statesync_dirty_entities", "Changes that are not in Redis after a push", ["namespace"],
            registry=registry,
        )  # fmt: skip
        self.pulls = Counter(
            "aibrix_statesync_pulls", "Whole pulls, by what made them due", ["namespace", "reason"], registry=registry
        )
        self.messages = Counter(
            "aibrix_statesync_messages", "Messages between replicas", ["namespace", "op"], registry=registry
        )
        self.listening = Gauge(
            "aibrix_statesync_listening", "Whether changes of peers arrive at once", ["namespace"], registry=registry
        )
