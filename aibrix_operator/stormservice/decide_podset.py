"""The next steps of one PodSet: all members there, each under its own index, none too many."""

from __future__ import annotations

from datetime import datetime

from aibrix_operator.api import orchestration
from aibrix_operator.api.orchestration import Reason
from aibrix_operator.api.podset import RecoveryPolicy
from aibrix_operator.controller.steps import Create, Note, SetFinalizer, Step
from aibrix_operator.stormservice import gangs, render
from aibrix_operator.stormservice.drain import DrainReason, Leave
from aibrix_operator.stormservice.outline import Outline, delete, sooner, tell
from aibrix_operator.stormservice.resources import PODS
from aibrix_operator.stormservice.seen import Pod, PodSetView, Served, index_of


def member_index(pod: Pod) -> int:
    """The Pod's index in its PodSet; one past all others where it cannot be read."""
    found = index_of(pod.labels.get(orchestration.POD_GROUP_INDEX))
    return orchestration.MAX_GROUP if found is None else found


def decide(view: PodSetView, now: datetime) -> Outline:
    """What to do now. ValidationError when the spec cannot be read."""
    podset = view.podset
    if podset.is_terminating:
        return _finalize(view, now)
    if not podset.has_finalizer(orchestration.PODSET_FINALIZER):
        return Outline((SetFinalizer(orchestration.PODSET_FINALIZER, True),))
    first, told = gangs.plan(podset, "PodSet", podset.spec.scheduling_strategy, view.groups)
    if first:
        return Outline(tuple(first), tuple(told))
    leave = Leave()
    size = podset.spec.pod_group_size
    surplus = [p for p in view.pods if member_index(p) >= size]
    members = [p for p in view.pods if member_index(p) < size]
    for pod in sorted(surplus, key=member_index, reverse=True):
        if not pod.is_terminating:
            leave.take(pod, podset.spec.drain_s, DrainReason.SCALE_IN, now)
    if leave.steps:
        told.append(tell(Reason.SCALING_DOWN, f"{len(surplus)} Pods beyond podGroupSize {size} go"))
    creates: list[Step] = []
    if sum(not p.has_ended for p in members) < size:
        creates = _refill(view, members, leave, told, now)
    leave.spare(members, frozenset(), frozenset())
    look_again_s = gangs.look_again_s(podset.spec.scheduling_strategy, view.groups)
    return Outline((*creates, *leave.steps), (*told, *leave.notes), sooner(look_again_s, leave.look_again_s))


def _refill(view: PodSetView, members: list[Pod], leave: Leave, told: list[Note], now: datetime) -> list[Step]:
    """Members are missing: by the recovery policy make them anew, or all of them once none is left."""
    podset = view.podset
    ended: list[Step] = [delete(PODS, p) for p in members if p.has_ended and not p.is_terminating]
    if podset.spec.recovery_policy is RecoveryPolicy.RECREATE and members:
        staying = [p for p in members if not p.has_ended and not p.is_terminating]
        for pod in staying:
            leave.take(pod, podset.spec.drain_s, DrainReason.ROLLOUT, now)
        if staying and leave.steps:
            told.append(tell(Reason.RECREATING_ALL, f"a member was lost: {len(staying)} others go too"))
        leave.steps += ended
        return []
    restarted = [p for p in members if p.has_restarted and p.is_active]
    leave.steps += ended
    if restarted:
        leave.steps += [delete(PODS, p) for p in restarted]
        told.append(tell(Reason.DELETING_UNHEALTHY, f"{len(restarted)} members restarted while others are missing"))
        return []
    taken = {member_index(p) for p in members}
    missing = [index for index in range(podset.spec.pod_group_size) if index not in taken]
    if missing and members:
        told.append(tell(Reason.REPLACING_UNHEALTHY, f"members {', '.join(map(str, missing))} are made"))
    is_served = view.groups.served is Served.YES
    return [Create(PODS, render.member(podset, index, gang_served=is_served)) for index in missing]


def _finalize(view: PodSetView, now: datetime) -> Outline:
    """Members leave with their drain time, then the PodGroup goes."""
    podset = view.podset
    if not podset.has_finalizer(orchestration.PODSET_FINALIZER):
        return Outline()
    leave = Leave()
    for pod in view.pods:
        if not pod.is_terminating:
            leave.take(pod, podset.spec.drain_s, DrainReason.SCALE_IN, now)
    if view.pods:
        return Outline(tuple(leave.steps), tuple(leave.notes), sooner(15.0, leave.look_again_s))
    groups = gangs.remove(podset, podset.spec.scheduling_strategy, view.groups)
    return Outline((*groups, SetFinalizer(orchestration.PODSET_FINALIZER, False)))
