"""Which Pods a change of a claim concerns, and when a pass may leave the others out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from aibrix_operator.api.modelclaim import Instance, InstancePhase
from aibrix_operator.modelclaim.memory import Memory
from aibrix_operator.modelclaim.snapshot import Claim, Fleet


def is_seated(instances: Sequence[Instance]) -> bool:
    """Whether these are a claim's that wants no place: it has engines, and none of them failed for good."""
    return bool(instances) and all(i.phase is not InstancePhase.FAILED for i in instances)


def concerned_by_claim(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> set[str] | None:
    """Names of the Pods that need a look when a claim's object changes so; None where it may be any."""
    if before is None or "deletionTimestamp" in after["metadata"]:
        return None
    if before["metadata"].get("generation") != after["metadata"].get("generation"):
        return None
    was, now = _pods(before), _pods(after)
    return now if now and was == now else None


def _pods(claim: Mapping[str, Any]) -> set[str]:
    """The Pods that a claim's object is seated on; empty also for one that cannot be read or has failed."""
    status = claim.get("status")
    instances = status.get("instances") if isinstance(status, Mapping) else None
    try:
        found = {i["pod"]: i.get("phase") for i in instances or ()}
    except (AttributeError, KeyError, TypeError):
        return set()  # an object that the schema cannot have let through is for a whole pass to judge
    return set() if InstancePhase.FAILED in found.values() else set(found)


def seating(fleet: Fleet, memory: Memory, now_s: float) -> dict[str, tuple[tuple[str, str], ...]] | None:
    """Pod name → (namespace, name) of the claims on it, while nobody wants a place or is on the way to or from one.

    None otherwise: every pass is then a whole one. ``fleet`` is whole, and ``memory`` what came of it.
    """
    if any(c.hold is not None or (c.division is not None and c.division.newcomer) for c in memory.cards.values()):
        return None
    seated: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for claim in fleet.claims:
        if not (_is_at_rest(claim, fleet) or _is_waiting(claim, memory, now_s)):
            return None
        for instance in claim.status.instances:
            seated[instance.pod].append((claim.namespace, claim.name))
    return {pod: tuple(keys) for pod, keys in seated.items()}


def _is_at_rest(claim: Claim, fleet: Fleet) -> bool:
    is_known = (
        claim.has_finalizer and not (claim.is_deleting or claim.unsure_pods) and is_seated(claim.status.instances)
    )
    if not is_known or any(i.pod not in fleet.pods for i in claim.status.instances):
        return False
    pods = {i.pod for i in claim.status.instances}
    return not claim.is_writing or {i.pod for i in claim.writing_instances} == pods


def _is_waiting(claim: Claim, memory: Memory, now_s: float) -> bool:
    """Whether it has been told why it has no place, and nothing but time or room that comes free changes that."""
    if claim.status.instances or claim.is_writing or claim.is_deleting or claim.unsure_pods:
        return False
    wait = memory.claims[claim.uid].wait if claim.uid in memory.claims else None
    return bool(claim.engine_error) or claim.seat is None or (wait is not None and now_s < wait.until_s)
