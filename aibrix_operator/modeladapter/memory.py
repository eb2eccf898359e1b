"""What the controller remembers of an adapter between passes. Losing it costs a call to each engine and no more: what
is loaded is told by the engines' lists, what failed by the annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aibrix_operator.modeladapter.retries import Tries
from aibrix_operator.modeladapter.snapshot import Refusal, Snapshot, Verdict


@dataclass(frozen=True, slots=True)
class Word:
    """How the last load or unload on a Pod ended."""

    loads: bool
    verdict: Verdict
    artifact_url: str
    message: str
    ended_at_s: float


NOTICE_S = 1.0
"""How long gateways have to hear that a Pod is let go, as we do, before its engine is told to unload."""
ROUTE_AGAIN_S = 300.0
"""How often it is looked whether somebody removed the HTTPRoute, of which no watch tells, or gave us the right."""
ROUTE_RETRY_S = 10.0


@dataclass(frozen=True, slots=True)
class Route:
    """How the last call about the HTTPRoute ended."""

    is_made: bool = False
    is_removed: bool = False
    again_at_s: float = 0.0
    """When it is called about again."""
    is_forbidden: bool = False
    """The operator lacks the right, and it was told."""


@dataclass(frozen=True, slots=True)
class Memory:
    """By Pod UID."""

    words: Mapping[str, Word] = field(default_factory=dict)
    tries: Mapping[str, Tries] = field(default_factory=dict)
    """Newer than what the annotations say, until they say the same."""
    route: Route = Route()
    refusal: Refusal | None = None
    """Stands until Service and EndpointSlices are as wanted."""
    retiring_since_s: float | None = None
    """When its deletion was first seen, on the monotonic clock."""
    withdrawn_s: Mapping[str, float] = field(default_factory=dict)
    """When it was first seen that requests are not to go to a Pod: the status does not tell of it, or the adapter is
    being deleted. On the monotonic clock."""
    generation: int = 0
    """Of the spec that was decided on last; 0: none yet."""


def remember(memory: Memory, snapshot: Snapshot) -> Memory:
    """``memory`` with what ended since, and without Pods that are gone."""
    words = dict(memory.words)
    for call in snapshot.called:
        words[call.pod_uid] = Word(call.loads, call.verdict, call.artifact_url, call.message, call.ended_at_s)
    known = {pod.target.uid for pod in snapshot.pods}
    told = () if snapshot.adapter.is_deleting else snapshot.adapter.status.instances
    withdrawn = [pod.target.uid for pod in snapshot.pods if pod.name not in told]
    route, ended = memory.route, snapshot.route_called
    if ended is not None:
        is_done = not ended.error
        again_at_s = ended.ended_at_s + (ROUTE_AGAIN_S if is_done or ended.is_forbidden else ROUTE_RETRY_S)
        route = Route(ended.made and is_done, not ended.made and is_done, again_at_s, ended.is_forbidden)
    return Memory(
        words={uid: word for uid, word in words.items() if uid in known},
        tries={uid: tries for uid, tries in memory.tries.items() if uid in known},
        route=route,
        refusal=snapshot.refusal or memory.refusal,
        retiring_since_s=memory.retiring_since_s if snapshot.adapter.is_deleting else None,
        withdrawn_s={uid: memory.withdrawn_s.get(uid, snapshot.now_s) for uid in withdrawn},
        generation=memory.generation,
    )
