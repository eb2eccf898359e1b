"""Counts which phases and reasons claims came to, so that what a simulation never reaches is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from aibrix_operator.cluster.resource import MODEL_CLAIMS, Object, Resource
from aibrix_operator.sim.store import Store


@dataclass(slots=True)
class Reached:
    """What the controller's status writes said that the status before did not."""

    phases: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """``Type/Reason`` of conditions, and ``Instance/Reason`` of instances."""
    events: Counter[str] = field(default_factory=Counter)

    def watch(self, store: Store) -> None:
        """Hear of every change, after whoever listens now."""
        before = store.changed

        def changed(verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
            before(verb, resource, old, new)
            if verb == "status" and resource == MODEL_CLAIMS and new is not None:
                self._count((old or {}).get("status") or {}, new.get("status") or {})

        store.changed = changed

    def _count(self, old: Object, new: Object) -> None:
        if new.get("phase") != old.get("phase"):
            self.phases[str(new.get("phase"))] += 1
        for reason in _reasons(new) - _reasons(old):
            self.reasons[reason] += 1


def _reasons(status: Object) -> set[str]:
    conditions, instances = status.get("conditions"), status.get("instances")
    if not isinstance(conditions, list) or not isinstance(instances, list):
        return set()  # another hand wrote it
    found = {f"{c['type']}/{c['reason']}" for c in conditions}
    return found | {f"Instance/{i['reason']}" for i in instances if i.get("reason")}
