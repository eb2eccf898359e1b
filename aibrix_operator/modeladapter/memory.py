"""What the controller remembers of an adapter between passes. Losing it costs a call to each engine and no more: what
is loaded is told by the engines' lists, what failed by the annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aibrix_operator.modeladapter.retries import Tries
from aibrix_operator.modeladapter.snapshot import Called, PodFacts, Verdict


@dataclass(frozen=True, slots=True)
class Word:
    """How the last load or unload on a Pod ended."""

    loads: bool
    verdict: Verdict
    artifact_url: str
    message: str
    ended_at_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """By Pod UID."""

    words: Mapping[str, Word] = field(default_factory=dict)
    tries: Mapping[str, Tries] = field(default_factory=dict)
    """Newer than what the annotations say, until they say the same."""


def remember(memory: Memory, called: Sequence[Called], pods: Sequence[PodFacts]) -> Memory:
    """``memory`` with what ended since, and without Pods that are gone."""
    words = dict(memory.words)
    for call in called:
        words[call.pod_uid] = Word(call.loads, call.verdict, call.artifact_url, call.message, call.ended_at_s)
    known = {pod.target.uid for pod in pods}
    return Memory(
        words={uid: word for uid, word in words.items() if uid in known},
        tries={uid: tries for uid, tries in memory.tries.items() if uid in known},
    )
