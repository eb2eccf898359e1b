"""What is remembered of one object between passes. All of it may be lost: then it is read, tried or told once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from aibrix_operator.api.gang import Scheduler, SchedulingStrategy
from aibrix_operator.api.orchestration import Reason
from aibrix_operator.controller.cache import owner_uid
from aibrix_operator.controller.steps import Call, Create, Finished, Note, Step
from aibrix_operator.stormservice import gangs
from aibrix_operator.stormservice.in_place import SetGate
from aibrix_operator.stormservice.resources import POD_GROUPS
from aibrix_operator.stormservice.seen import PodGroups, Seen, Served

MAX_CREATES = 500
STANDING = frozenset({Reason.TOPOLOGY_PENDING.value, Reason.POD_GROUP_UNOBSERVED.value})
"""Reasons of Events about something that lasts: told once for each message."""
GROUPS_LANE = "podgroups"
GATE_AGAIN_S = 5.0
"""A gate is set again so long after the Pod did not change by it."""


@dataclass(frozen=True, slots=True)
class ReadGroups:
    """What to list: one object's PodGroups."""

    scheduler: Scheduler
    namespace: str
    selector: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one object."""

    max_creates: int = 1
    """Doubled after each pass that made something, and back at the start after a refusal: what cannot be made is tried
    few times."""
    told: frozenset[tuple[str, str]] = frozenset()
    """Reasons and messages of standing Events that were told."""
    gates: tuple[tuple[str, str, float], ...] = ()
    """Pods (UID and version) whose readiness gate we have set, and when: until the watch shows another version."""
    groups: PodGroups | None = None
    """The last reading of its PodGroups; None while they are not known."""
    groups_s: float = -inf
    """When they were read."""

    def hear(self, finished: Sequence[Finished], uid: str, now_s: float) -> Memory:
        """What ended since the last pass over the object with that UID."""
        memory = self
        for one in finished:
            what = one.step.what if isinstance(one.step, Call) else None
            if isinstance(what, ReadGroups) and isinstance(one.value, PodGroups):
                memory = replace(memory, groups=one.value, groups_s=now_s)
            elif what is None and _is_about_groups(one.step) and (refusal := problems([one], uid)):
                memory = replace(memory, groups=PodGroups(Served.YES, refusal=refusal), groups_s=now_s)
        return replace(memory, gates=tuple(g for g in memory.gates if now_s - g[2] < GATE_AGAIN_S))

    def next_look(self, owner: Seen, kind: str, strategy: SchedulingStrategy | None, now_s: float) -> Call | None:
        """Read the owner's PodGroups where they are asked for and not known of late."""
        chosen = strategy.chosen() if strategy is not None else None
        again_s = gangs.look_again_s(strategy, self.groups) if self.groups is not None else None
        if chosen is None or (again_s is not None and now_s - self.groups_s < again_s):
            return None
        return Call(GROUPS_LANE, ReadGroups(chosen[0], owner.namespace, f"{gangs.label_of(kind)}={owner.name}"))

    def groups_due_s(self, strategy: SchedulingStrategy | None, now_s: float) -> float | None:
        """Time until the PodGroups are to be read again; None: they are being read, or there are none."""
        again_s = gangs.look_again_s(strategy, self.groups) if self.groups is not None else None
        return None if again_s is None else max(0.0, self.groups_s + again_s - now_s)

    def after(self, steps: Iterable[Step], first: int, now_s: float, *, is_refused: bool) -> Memory:
        """What to remember of a plan of ``steps``. ``first``: creations that a first pass may try."""
        groups, max_creates, gates = self.groups, self.max_creates, list(self.gates)
        if is_refused:
            max_creates = first
        elif any(isinstance(step, Create) for step in steps):
            max_creates = min(MAX_CREATES, 2 * max_creates)
        for step in steps:
            if not isinstance(step, Call) and _is_about_groups(step):
                groups = None  # read again before anything is decided by them
            elif isinstance(step, Call) and isinstance(step.what, SetGate):
                gates.append((step.lane, step.what.version, now_s))
        return replace(self, groups=groups, max_creates=max_creates, gates=tuple(gates))

    def unasked(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """``steps`` less the gates that we have just set in this very version of their Pods."""
        asked = {gate[:2] for gate in self.gates}
        return tuple(
            step
            for step in steps
            if not (
                isinstance(step, Call) and isinstance(step.what, SetGate) and (step.lane, step.what.version) in asked
            )
        )

    def untold(self, notes: Iterable[Note]) -> tuple[tuple[Note, ...], Memory]:
        """``notes`` less standing ones that were told, and the memory of the rest."""
        notes = tuple(notes)
        standing = frozenset((n.reason, n.message) for n in notes if n.reason in STANDING)
        fresh = tuple(n for n in notes if n.reason not in STANDING or (n.reason, n.message) not in self.told)
        return fresh, replace(self, told=standing)


def problems(finished: Iterable[Finished], uid: str) -> str:
    """What the API server refused, as one sentence each; empty when nothing was.

    A name that an object of ours has already is no refusal: an earlier try made it, and its answer was lost.
    """
    texts = []
    for one in finished:
        if isinstance(one.step, Call) or one.refusal is None:
            continue
        if one.found is None or owner_uid(one.found) != uid:
            texts.append(str(one.refusal))
    return "; ".join(dict.fromkeys(texts))


def _is_about_groups(step: Step) -> bool:
    return getattr(step, "resource", None) in POD_GROUPS.values()
