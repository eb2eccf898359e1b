"""The three kinds as the frame runs them: what each reads, and decide and publish put together into one plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from aibrix_operator.api import orchestration
from aibrix_operator.api.conditions import ConditionStatus, bounded
from aibrix_operator.api.orchestration import ConditionType, Reason, set_timed
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import Key, Object
from aibrix_operator.cluster.watch import Change
from aibrix_operator.controller.controller import Controller
from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.keyed import KeyedController
from aibrix_operator.controller.kind import Reads, View, children
from aibrix_operator.controller.steps import Call, Create, Finished, Moment, Note, Plan, Replace, SetStatus, Step
from aibrix_operator.stormservice import decide_podset, decide_roleset, decide_storm, publish
from aibrix_operator.stormservice.in_place import SetGate
from aibrix_operator.stormservice.memory import GATE_AGAIN_S, Memory, ReadGroups, problems
from aibrix_operator.stormservice.outline import Outline, sooner, sooner_by, warn
from aibrix_operator.stormservice.resources import (
    POD_GROUPS,
    PODS,
    PODSETS,
    REVISIONS,
    ROLESETS,
    SERVICES,
    STORMSERVICES,
)
from aibrix_operator.stormservice.seen import (
    Pod,
    PodGroups,
    PodSet,
    PodSetView,
    Revision,
    RoleSet,
    RoleSetView,
    Seen,
    SeenOnce,
    Served,
    StormService,
    StormView,
)

PODS_AT_FIRST = 16
ROLESETS_AT_FIRST = 1


def _pods(owner: str) -> Reads:
    whole = children(PODS, owner, label_selector=orchestration.ROLESET_LABEL)

    def wakes(change: Change, old: Object | None, new: Object | None) -> Iterable[Key]:
        if old is not None and new is not None and _figures(old) == _figures(new):
            return ()
        return whole.wakes(change, old, new)

    return replace(whole, wakes=wakes)


def _figures(pod: Object) -> tuple[Any, ...]:
    """What a pass looks at. Where a Pod was scheduled is not among it: it is remembered once the Pod does more."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    return (
        *(metadata.get(field) for field in ("uid", "deletionTimestamp", "labels", "annotations", "ownerReferences")),
        [c.get("image") for c in pod["spec"].get("containers", ())],
        status.get("phase"),
        {c["type"]: c["status"] for c in status.get("conditions") or () if c["type"] != "PodScheduled"},
        [
            (c["name"], c.get("ready"), c.get("imageID"), c.get("restartCount"))
            for c in status.get("containerStatuses") or ()
        ],
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One object with all that belongs to it, and what ended since the last pass."""

    view: Any
    """A StormView, RoleSetView or PodSetView."""
    finished: tuple[Finished, ...]


class _Performs:
    """Calls of RoleSets and PodSets."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def perform(self, call: Call) -> Any:
        """Read PodGroups, or set a Pod's readiness gate."""
        match call.what:
            case ReadGroups(scheduler=scheduler, namespace=namespace, selector=selector):
                try:
                    found, _ = await self._hub.reader.list_all(
                        POD_GROUPS[scheduler], namespace, label_selector=selector
                    )
                except errors.NotFound:
                    return PodGroups(Served.MISSING)
                except errors.Denied:
                    return PodGroups(Served.FORBIDDEN)
                return PodGroups(Served.YES, tuple(found))
            case SetGate(namespace=namespace, name=name, version=version, conditions=conditions):
                status = {"conditions": list(conditions)}
                return await self._hub.writer.patch_status(PODS, namespace, name, status, version)
        raise AssertionError(f"{call.what} is no call of ours")


class PodSetKind(_Performs):
    """PodSets: members under their indexes."""

    name, kind, resource = "podset", "PodSet", PODSETS
    reads = (_pods("PodSet"),)
    fresh = Memory(max_creates=PODS_AT_FIRST)

    def observe(self, view: View) -> Snapshot | None:
        """The PodSet and its Pods."""
        podset = PodSet(view.own)
        if podset.is_terminating and not podset.has_finalizer(orchestration.PODSET_FINALIZER):
            return None
        return Snapshot(PodSetView(podset, tuple(map(Pod, view.children(PODS)))), view.finished)

    def decide(self, snapshot: Snapshot, memory: Memory, now: Moment) -> tuple[Plan, Memory]:
        """One pass."""
        podset: PodSet = snapshot.view.podset
        memory = memory.hear(snapshot.finished, podset.uid, now.monotonic_s)
        refusal = problems(snapshot.finished, podset.uid)
        try:
            strategy = podset.spec.scheduling_strategy
        except ValidationError as error:
            return Plan(notes=(warn(Reason.RECONCILE_ERROR, _said(error)),)), memory
        look = memory.next_look(podset, "PodSet", strategy, now.monotonic_s)
        if look is not None and memory.groups is None:
            return Plan((look,)), memory
        view = replace(snapshot.view, groups=memory.groups or PodGroups())
        outline = decide_podset.decide(view, now.wall)
        outline = sooner_by(outline, memory.groups_due_s(strategy, now.monotonic_s))
        if refusal:
            outline = replace(outline, notes=(*outline.notes, warn(Reason.RECONCILE_ERROR, refusal)))
        status = None if podset.is_terminating else publish.podset_status(view)
        return _planned(outline, look, status, memory, PODS_AT_FIRST, now, refusal)


class RoleSetKind(_Performs):
    """RoleSets: roles scaled and updated."""

    name, kind, resource = "roleset", "RoleSet", ROLESETS
    reads = (_pods("RoleSet"), children(PODSETS, "RoleSet"))
    fresh = Memory(max_creates=PODS_AT_FIRST)

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._rolesets = SeenOnce(RoleSet)

    def observe(self, view: View) -> Snapshot | None:
        """The RoleSet, its Pods and its PodSets."""
        roleset = self._rolesets.of(view.own)
        if roleset.is_terminating and not roleset.has_finalizer(orchestration.ROLESET_FINALIZER):
            return None
        pods, podsets = view.children(PODS), view.children(PODSETS)
        return Snapshot(RoleSetView(roleset, tuple(map(Pod, pods)), tuple(map(PodSet, podsets))), view.finished)

    def decide(self, snapshot: Snapshot, memory: Memory, now: Moment) -> tuple[Plan, Memory]:
        """One pass."""
        roleset: RoleSet = snapshot.view.roleset
        memory = memory.hear(snapshot.finished, roleset.uid, now.monotonic_s)
        error = problems(snapshot.finished, roleset.uid) or (memory.groups.refusal if memory.groups is not None else "")
        try:
            strategy = roleset.spec.scheduling_strategy
        except ValidationError as unreadable:
            return Plan((_failed(roleset.body, Reason.ROLESET_FAILED, _said(unreadable), now.wall),)), memory
        look = memory.next_look(roleset, "RoleSet", strategy, now.monotonic_s)
        if look is not None and memory.groups is None:
            return Plan((look,)), memory
        view = replace(snapshot.view, groups=memory.groups or PodGroups())
        outline = decide_roleset.decide(view, now.wall, memory.max_creates)
        outline = sooner_by(outline, memory.groups_due_s(strategy, now.monotonic_s))
        status = None if roleset.is_terminating else publish.roleset_status(view, error, now.wall)
        return _planned(outline, look, status, memory, PODS_AT_FIRST, now, error)


class StormServiceKind:
    """StormServices: revisions, the Service, and RoleSets."""

    name, kind, resource = "stormservice", "StormService", STORMSERVICES
    reads = (
        children(ROLESETS, "StormService"),
        children(REVISIONS, "StormService"),
        children(SERVICES, "StormService"),
    )
    fresh = Memory(max_creates=ROLESETS_AT_FIRST)

    def __init__(self) -> None:
        self._storms = SeenOnce(StormService)
        self._rolesets = SeenOnce(RoleSet)

    def observe(self, view: View) -> Snapshot | None:
        """The StormService and all that it owns directly, and the Service of its name."""
        storm = self._storms.of(view.own)
        if storm.is_terminating and not storm.has_finalizer(orchestration.STORM_FINALIZER):
            return None
        service = view.cache(SERVICES).get((storm.namespace, storm.name))
        seen = StormView(
            storm,
            tuple(map(self._rolesets.of, view.children(ROLESETS))),
            tuple(map(Revision, view.children(REVISIONS))),
            None if service is None else Seen(service),
        )
        return Snapshot(seen, view.finished)

    def decide(self, snapshot: Snapshot, memory: Memory, now: Moment) -> tuple[Plan, Memory]:
        """One pass."""
        view: StormView = snapshot.view
        storm = view.storm
        known = [f for f in snapshot.finished if _is_collision(f, storm.uid) or _is_renumbering(f)]
        error = problems([f for f in snapshot.finished if f not in known], storm.uid)
        try:
            collisions = storm.status.collision_count + sum(_is_collision(f, storm.uid) for f in snapshot.finished)
            is_foreign = any(map(_is_renumbering, snapshot.finished))
            decision = decide_storm.decide(view, collisions, is_foreign=is_foreign)
        except ValidationError as unreadable:
            return Plan((_failed(storm.body, Reason.FAILURE, _said(unreadable), now.wall),)), memory
        error = bounded(error or decision.outline.problem)
        notes: tuple[Note, ...] = ()
        if error:
            notes = (warn(Reason.SCALING if _is_scaling(snapshot.finished) else Reason.ROLLOUT, error),)
        outline = decision.outline
        outline = replace(outline, steps=_at_most(outline.steps, memory.max_creates))
        if storm.is_terminating:
            return _planned(outline, None, None, memory, ROLESETS_AT_FIRST, now, error)
        status = publish.storm_status(view, decision.resolution, collisions, error, now.wall)
        again_s = publish.look_again_s(status, storm.spec.paused, storm.spec.progress_deadline_seconds, now.wall)
        is_news = error != _told_failure(storm)
        outline = replace(
            outline,
            notes=(*outline.notes, *(notes if is_news else ())),
            look_again_s=sooner(outline.look_again_s, again_s),
        )
        has_collided = collisions != storm.status.collision_count
        return _planned(outline, None, status, memory, ROLESETS_AT_FIRST, now, error, must_tell=has_collided)

    async def perform(self, call: Call) -> Any:
        """StormServices make no calls."""
        raise AssertionError(f"{call.what} is no call of ours")


def _planned(
    outline: Outline,
    look: Call | None,
    status: BaseModel | None,
    memory: Memory,
    first: int,
    now: Moment,
    error: str,
    *,
    must_tell: bool = False,
) -> tuple[Plan, Memory]:
    """The plan of an outline. Where it writes, the pass that follows at once has better figures for the status."""
    steps = list(memory.unasked(outline.steps))
    again_s = outline.look_again_s if len(steps) == len(outline.steps) else sooner(outline.look_again_s, GATE_AGAIN_S)
    notes, memory = memory.untold(outline.notes)
    memory = memory.after(steps, first, now.monotonic_s, is_refused=bool(error))
    if look is not None:
        steps.append(look)
    is_writing = any(not isinstance(step, Call) for step in steps)
    if status is not None and (not is_writing or error or must_tell):
        steps.append(SetStatus(status.model_dump(mode="json", by_alias=True, exclude_none=True)))
    return Plan(tuple(steps), notes, again_s), memory


def _at_most(steps: Sequence[Step], creates: int) -> tuple[Step, ...]:
    """``steps`` with the first ``creates`` creations; later passes bring the rest."""
    made = [step for step in steps if isinstance(step, Create)]
    left = {id(step) for step in made[creates:]}
    return tuple(step for step in steps if id(step) not in left)


def _is_collision(finished: Finished, uid: str) -> bool:
    """A new revision's name is another object's."""
    step = finished.step
    return (
        isinstance(step, Create)
        and step.resource == REVISIONS
        and isinstance(finished.error, errors.AlreadyExists)
        and finished.found is not None
        and not (
            Seen(finished.found).is_controlled_by(uid)
            and Revision(finished.found).template == Revision(step.body).template
        )
    )


def _is_renumbering(finished: Finished) -> bool:
    """A revision could not be renumbered by being written whole."""
    step = finished.step
    return isinstance(step, Replace) and step.resource == REVISIONS and finished.refusal is not None


def _is_scaling(finished: Sequence[Finished]) -> bool:
    return any(isinstance(f.step, Create) and f.step.resource == ROLESETS for f in finished)


def _told_failure(storm: StormService) -> str:
    found = orchestration.find_timed(storm.status.conditions, ConditionType.REPLICA_FAILURE)
    return found.message if found is not None else ""


def _failed(body: Any, reason: Reason, message: str, now: datetime) -> SetStatus:
    """The status of an object whose spec cannot be read: all as it was, and why."""
    status = dict(body.get("status") or {})
    before = tuple(orchestration.TimedCondition.model_validate(c) for c in status.get("conditions") or ())
    after = set_timed(before, ConditionType.REPLICA_FAILURE, ConditionStatus.TRUE, reason, message, now=now)
    status["conditions"] = [c.model_dump(mode="json", by_alias=True, exclude_none=True) for c in after]
    return SetStatus(status)


def _said(error: ValidationError) -> str:
    """The first thing that is wrong with a spec, and where."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def controllers(hub: Hub) -> list[Controller]:
    """The controllers of the three kinds; what a kind owns before the kind, so that they share its cache."""
    return [
        KeyedController(PodSetKind(hub), hub),
        KeyedController(RoleSetKind(hub), hub),
        KeyedController(StormServiceKind(), hub),
    ]
