"""ModelWarmups in the frame: what they read, and whom a change concerns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aibrix_operator.api.modelwarmup import MODELWARMUP, WARMUP_LABEL
from aibrix_operator.cluster.resource import JOBS, MODEL_WARMUPS, NAMESPACES, NODES, PODS, Key, Object, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.controller.cache import Selection, controller_of
from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.kind import Reads, View, children
from aibrix_operator.controller.steps import Call, Moment, Plan
from aibrix_operator.modelwarmup import decide as deciding
from aibrix_operator.modelwarmup import observe as observing
from aibrix_operator.modelwarmup.metrics import Gauges
from aibrix_operator.modelwarmup.snapshot import Warmup


class ModelWarmups:
    """A ``Kind``."""

    name = "modelwarmup"
    kind = MODELWARMUP.kind
    resource = MODEL_WARMUPS
    fresh = deciding.Memory()

    def __init__(self, hub: Hub) -> None:
        """``hub``: the one that its controller is made in."""
        self._own = hub.caches.own(MODEL_WARMUPS)
        self._jobs = hub.caches.of(Selection(JOBS, WARMUP_LABEL, slim=observing.slim_job))
        nodes = Selection(NODES, is_namespaced=False, slim=observing.slim_node)
        namespaces = Selection(NAMESPACES, is_namespaced=False, slim=observing.slim_namespace)
        self._reads = (
            children(JOBS, self.kind, label_selector=WARMUP_LABEL, slim=observing.slim_job),
            Reads(nodes, self._node_changed),
            Reads(namespaces, self._namespace_changed),
            Reads(Selection(PODS, WARMUP_LABEL, slim=observing.slim_pod), self._pod_changed),
        )
        hub.metrics.registry.register(Gauges(self._own))

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Jobs; Nodes and Namespaces by their labels; Pods that report what they fetched."""
        return self._reads

    def observe(self, view: View) -> Warmup | None:
        """As ``Kind.observe``."""
        return observing.observe(view)

    def decide(self, snapshot: Warmup, memory: deciding.Memory, now: Moment) -> tuple[Plan, deciding.Memory]:
        """As ``Kind.decide``."""
        return deciding.decide(snapshot, memory, now)

    async def perform(self, call: Call) -> Any:
        """There are none."""
        raise AssertionError(f"no step of a warmup is a call: {call}")

    # --- whom a change concerns

    def _going(self, namespace: str | None = None) -> Iterable[Key]:
        """Warmups that are not over. Those that are, nothing outside concerns any more."""
        for obj in self._own.values():
            phase = observing.phase_of(obj)
            if (phase is None or not phase.is_terminal) and namespace in (None, key_of(obj)[0]):
                yield key_of(obj)

    def _node_changed(self, change: Change, old: Object | None, new: Object | None) -> Iterable[Key]:
        return self._going() if _labels(old) != _labels(new) else ()

    def _namespace_changed(self, change: Change, old: Object | None, new: Object | None) -> Iterable[Key]:
        obj = new if new is not None else old
        if obj is None or _labels(old) == _labels(new):
            return ()
        return self._going(obj["metadata"]["name"])

    def _pod_changed(self, change: Change, old: Object | None, new: Object | None) -> Iterable[Key]:
        """Its Job's warmup. A Pod that goes takes no report with it that has not been read."""
        reference = None if new is None else controller_of(new)
        if new is None or reference is None or (old is not None and old["reports"] == new["reports"]):
            return ()
        job = self._jobs.get((key_of(new)[0], str(reference["name"])))
        owner = None if job is None else controller_of(job)
        return () if owner is None else ((key_of(new)[0], str(owner["name"])),)


def _labels(slim: Object | None) -> Any:
    return None if slim is None else slim["metadata"]["labels"]
