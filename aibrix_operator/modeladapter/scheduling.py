"""Which Pods get an adapter that is wanted on some of them only. Pure; every policy is a total order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.modeladapter import work
from aibrix_operator.modeladapter.snapshot import PodFacts

STABLE_S: Final = 5.0
"""A Pod that became ready a moment ago may go again: it is passed over for so long."""
PACKED: Final = 10
"""Models on a Pod that ``binPack`` takes for full."""


def models_on(pod: PodFacts) -> int:
    """Models of a Pod: those that its engine lists, the adapters on their way to it instead of the listed ones where
    they are more."""
    listed = pod.listing.models.values() if pod.listing is not None else ()
    bases = sum(model.is_base for model in listed)
    return bases + max(len(listed) - bases, pod.other_adapters)


def is_stable(pod: PodFacts, now: datetime) -> bool:
    """Whether the Pod has been ready for long enough."""
    return pod.ready_since is not None and (now - pod.ready_since).total_seconds() >= STABLE_S


def figure(policy: Policy, pod: PodFacts) -> float | None:
    """By what a policy that goes by metrics compares the Pod: less is better. None: its engine does not tell."""
    assert policy.is_by_work, f"{policy} does not go by metrics"
    if pod.work is None:
        return None
    if policy is Policy.LEAST_LATENCY:
        return work.latency_s(pod.work)
    return work.weighted_tokens_per_minute(pod.work)


def is_awaited(policy: Policy, pod: PodFacts) -> bool:
    """Whether the Pod's figure is about to come. An engine that tells none is not awaited."""
    if not policy.is_by_work:
        return False
    if pod.work is None:
        return True
    return policy is Policy.LEAST_THROUGHPUT and work.is_rate_awaited(pod.work)


def why_none(policy: Policy, pods: Sequence[PodFacts]) -> str:
    """Why none of ``pods``, of which there are some, qualifies."""
    if not policy.is_by_work:
        return "has no backend pod with room for another model"
    errors = (f": {pod.name}: {pod.work.error}" for pod in pods if pod.work is not None and pod.work.error)
    what = "request times" if policy is Policy.LEAST_LATENCY else "token counts"
    return f"has no backend pod whose engine's metrics tell {what}{next(errors, '')}"


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
        case Policy.LEAST_LATENCY | Policy.LEAST_THROUGHPUT:
            told = [(value, pod) for pod in pods if (value := figure(policy, pod)) is not None]
            ranked = [pod for _, pod in sorted(told, key=lambda each: (each[0], models_on(each[1]), each[1].name))]
    return ranked[:count]
