"""PodGroups: one for a RoleSet or for a PodSet that asks for gang scheduling, where their API is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aibrix_operator.api import gang, orchestration
from aibrix_operator.api.conditions import ConditionStatus
from aibrix_operator.api.gang import Scheduler, SchedulingStrategy
from aibrix_operator.api.orchestration import ConditionType, Reason
from aibrix_operator.controller.steps import Create, Delete, Note, Patch, Ref, Step
from aibrix_operator.stormservice import render
from aibrix_operator.stormservice.outline import tell, warn
from aibrix_operator.stormservice.resources import POD_GROUPS
from aibrix_operator.stormservice.seen import PodGroups, Seen, Served

LOOK_AGAIN_S = 15.0
"""PodGroups are not watched: they are looked at this often."""
FORBIDDEN_AGAIN_S = 300.0
"""Where the operator may not look, it asks again this often: the right comes with an upgrade of the release."""
_TASKS = "minTaskMember"
_RUNNING = ("Running", "Completed")


def api_group(scheduler: Scheduler) -> str:
    """Group and version of the scheduler's PodGroups."""
    kind = gang.POD_GROUPS[scheduler]
    return f"{kind.group}/{kind.version}"


def label_of(kind: str) -> str:
    """The label of a PodGroup that names its RoleSet or PodSet."""
    return orchestration.ROLESET_LABEL if kind == "RoleSet" else orchestration.PODSET_LABEL


def plan(
    owner: Seen, kind: str, strategy: SchedulingStrategy | None, groups: PodGroups
) -> tuple[list[Step], list[Note]]:
    """Make the owner's PodGroup, or bring its spec to what the strategy says."""
    chosen = strategy.chosen() if strategy is not None else None
    if chosen is not None and groups.served is Served.FORBIDDEN:
        return [], [warn(Reason.POD_GROUP_UNOBSERVED, _unobserved(chosen[0], groups))]
    if chosen is None or groups.served is not Served.YES or groups.refusal:
        return [], []
    scheduler, spec = chosen
    told = [tell(Reason.POD_GROUP_SYNCED, f"pod group {owner.name} synced")]
    found = groups.named(owner.name)
    if found is None:
        metadata = {
            "name": owner.name,
            "namespace": owner.namespace,
            "labels": {label_of(kind): owner.name},
            "ownerReferences": [render.owner_reference(kind, owner)],
        }
        body = {"apiVersion": api_group(scheduler), "kind": "PodGroup", "metadata": metadata, "spec": spec}
        return [Create(POD_GROUPS[scheduler], body)], told
    present = found.get("spec") or {}
    drift = {key: value for key, value in spec.items() if present.get(key) != value}
    # A definition that does not know minTaskMember drops it: writing it again would change nothing.
    if not drift or (set(drift) == {_TASKS} and _TASKS not in present):
        return [], []
    return [Patch(POD_GROUPS[scheduler], Ref.of(found), {"spec": drift})], told


def remove(owner: Seen, strategy: SchedulingStrategy | None, groups: PodGroups) -> list[Step]:
    """Delete the owner's PodGroup."""
    chosen = strategy.chosen() if strategy is not None else None
    found = groups.named(owner.name)
    if chosen is None or found is None or "deletionTimestamp" in found["metadata"]:
        return []
    return [Delete(POD_GROUPS[chosen[0]], Ref.of(found))]


Verdict = tuple[ConditionType, ConditionStatus, str, str]
"""Type, status, reason and message of a condition."""


def verdicts(owner: Seen, strategy: SchedulingStrategy | None, groups: PodGroups, error: str) -> list[Verdict]:
    """The two conditions of a RoleSet that uses Volcano; none for other schedulers."""
    chosen = strategy.chosen() if strategy is not None else None
    if chosen is None or chosen[0] is not Scheduler.VOLCANO:
        return []
    synced, gang_error = ConditionType.POD_GROUP_SYNCED, ConditionType.GANG_ERROR
    if groups.served is not Served.YES:
        message = _unobserved(chosen[0], groups)
        return [
            (type_, ConditionStatus.UNKNOWN, Reason.POD_GROUP_UNOBSERVED, message) for type_ in (synced, gang_error)
        ]
    found = groups.named(owner.name)
    if found is None:
        reason = Reason.POD_GROUP_FAILED if error else Reason.POD_GROUP_NOT_FOUND
        message = error or f"pod group {owner.name} is not there"
        return [(synced, ConditionStatus.FALSE, reason, message), (gang_error, ConditionStatus.TRUE, reason, message)]
    fine = (synced, ConditionStatus.TRUE, Reason.POD_GROUP_SYNCED, f"pod group {owner.name} is as asked for")
    reason_of_trouble, message = _trouble(found, chosen[1])
    if reason_of_trouble:
        return [fine, (gang_error, ConditionStatus.TRUE, reason_of_trouble, message)]
    return [fine, (gang_error, ConditionStatus.FALSE, Reason.GANG_HEALTHY, "nothing holds the gang up")]


def _unobserved(scheduler: Scheduler, groups: PodGroups) -> str:
    """Why nothing is known of the gang."""
    which = f"PodGroups of {api_group(scheduler)}"
    if groups.served is Served.MISSING:
        return f"{which} are not installed"
    return f"{which} may not be read: the chart's value orchestration.podGroups gives the right for {scheduler}"


def look_again_s(strategy: SchedulingStrategy | None, groups: PodGroups) -> float | None:
    """Time after which the owner's PodGroups are read again; None: it has none."""
    if strategy is None:
        return None
    return FORBIDDEN_AGAIN_S if groups.served is Served.FORBIDDEN else LOOK_AGAIN_S


def _trouble(group: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[str, str]:
    """Reason and message of what keeps a gang from running; both empty when nothing does."""
    name, status = group["metadata"]["name"], group.get("status") or {}
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if not isinstance(status, Mapping) or not isinstance(conditions or [], list):
        return Reason.POD_GROUP_MALFORMED, f"the status of pod group {name} has another shape than Volcano's"
    if not all(isinstance(c, Mapping) for c in conditions or ()):
        return Reason.POD_GROUP_MALFORMED, f"a condition of pod group {name} is no object"
    if status.get("phase") == "Unknown":
        return Reason.POD_GROUP_UNKNOWN, f"pod group {name} is in phase Unknown: part of it runs, part cannot"
    held = next((c for c in conditions or () if c.get("type") == "Unschedulable" and c.get("status") == "True"), None)
    if held is not None and status.get("phase") not in _RUNNING:
        return str(held.get("reason") or Reason.POD_GROUP_UNSCHEDULABLE), str(held.get("message") or "")
    if spec.get(_TASKS) and not (group.get("spec") or {}).get(_TASKS):
        return Reason.MIN_TASK_MEMBER, f"the installed PodGroup definition drops {_TASKS} of {name}"
    return "", ""
