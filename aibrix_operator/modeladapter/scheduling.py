"""Which Pods get an adapter that is wanted on some of them only. Pure; every policy is a total order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.modeladapter.snapshot import PodFacts

STABLE_S: Final = 5.0
"""A Pod that became ready a moment ago may go again: it is passed over for so long."""
PACKED: Final = 10
"""Models on a Pod that ``binPack`` takes for full."""


def models_on(pod: PodFacts) -> int:
    """Models of a Pod: those that its engine lists, or the adapters on their way to it where they are more."""
    listed = len(pod.listing.models) if pod.listing is not None else 0
    return max(listed, pod.other_adapters)


def is_stable(pod: PodFacts, now: datetime) -> bool:
    """Whether the Pod has been ready for long enough."""
    return pod.ready_since is not None and (now - pod.ready_since).total_seconds() >= STABLE_S


def choose(policy: Policy, adapter_uid: str, pods: Sequence[PodFacts], count: int) -> list[PodFacts]:
    """At most ``count`` of ``pods``, best first; fewer when fewer qualify, none when none does."""
    match policy:
        case Policy.LEAST_ADAPTERS:
            ranked = sorted(pods, key=lambda pod: (models_on(pod), pod.name))
        case Policy.BIN_PACK:
            ranked = sorted(
                (pod for pod in pods if models_on(pod) < PACKED), key=lambda pod: (-models_on(pod), pod.name)
            )
        case Policy.RANDOM:
            ranked = sorted(pods, key=lambda pod: hashlib.sha256(f"{adapter_uid} {pod.target.uid}".encode()).digest())
    return ranked[:count]
