"""The statuses: what was seen, counted, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from aibrix_operator.api import orchestration
from aibrix_operator.api.conditions import ConditionStatus
from aibrix_operator.api.gang import Scheduler
from aibrix_operator.api.orchestration import ConditionType, Reason, TimedCondition, find_timed, set_timed, without
from aibrix_operator.api.podset import PodSetPhase, PodSetStatus
from aibrix_operator.api.roleset import RoleSetStatus, RoleStatus
from aibrix_operator.api.stormservice import StormServiceStatus
from aibrix_operator.stormservice import gangs
from aibrix_operator.stormservice.decide_roleset import RoleInPass, roles_of
from aibrix_operator.stormservice.revisions import Resolution
from aibrix_operator.stormservice.seen import PodSetView, RoleSet, RoleSetView, StormView

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def podset_status(view: PodSetView) -> PodSetStatus:
    """Members counted; those on their way out still count."""
    standing = [p for p in view.pods if not p.has_ended]
    ready = sum(p.is_ready for p in standing)
    if not ready:
        phase = PodSetPhase.PENDING
    else:
        phase = PodSetPhase.READY if ready == view.podset.spec.pod_group_size else PodSetPhase.RUNNING
    return view.podset.status.model_copy(update={"ready_pods": ready, "total_pods": len(standing), "phase": phase})


# --- RoleSets


def roleset_status(view: RoleSetView, error: str, now: datetime) -> RoleSetStatus:
    """Roles counted. Ready when every role has as many ready replicas as it wants."""
    roles = roles_of(view)
    counted = tuple(_role_status(role) for role in roles)
    lacking = [r.role.name for r, s in zip(roles, counted, strict=True) if s.ready_replicas < r.role.wanted]
    conditions = view.roleset.status.conditions
    status, reason, message = TRUE, Reason.ROLESET_READY, ""
    if lacking:
        status, reason, message = FALSE, Reason.ROLESET_NOT_READY, f"role {','.join(lacking)} is not ready"
    before = find_timed(conditions, ConditionType.READY)
    if before is None or (before.status, before.reason) != (status, reason):
        conditions = set_timed(conditions, ConditionType.READY, status, reason, message, now=now)
    conditions = _failure(conditions, error, Reason.ROLESET_FAILED, now)
    roleset = view.roleset
    verdicts = gangs.verdicts(roleset, roleset.spec.scheduling_strategy, view.groups, error)
    if not verdicts:
        conditions = without(conditions, ConditionType.POD_GROUP_SYNCED, ConditionType.GANG_ERROR)
    for type_, gang_status, gang_reason, gang_message in verdicts:
        conditions = set_timed(conditions, type_, gang_status, gang_reason, gang_message, now=now)
    return RoleSetStatus(observed_generation=roleset.generation, roles=counted, conditions=conditions)


def _role_status(role: RoleInPass) -> RoleStatus:
    present = [c for c in role.copies.copies if c.is_active]
    ready = sum(c.is_ready for c in present)
    return RoleStatus(
        name=role.role.name,
        replicas=len(present),
        ready_replicas=ready,
        not_ready_replicas=len(present) - ready,
        updated_replicas=sum(c.is_updated for c in present),
        updated_ready_replicas=sum(c.is_updated and c.is_ready for c in present),
    )


def _failure(
    conditions: Sequence[TimedCondition], error: str, reason: Reason, now: datetime
) -> tuple[TimedCondition, ...]:
    if not error:
        return without(conditions, ConditionType.REPLICA_FAILURE)
    return set_timed(conditions, ConditionType.REPLICA_FAILURE, TRUE, reason, error, now=now)


# --- StormServices


def storm_status(
    view: StormView, resolution: Resolution | None, collisions: int, error: str, now: datetime
) -> StormServiceStatus:
    """RoleSets and roles counted, and the story of the update told in conditions."""
    storm, before = view.storm, view.storm.status
    rolesets = view.rolesets
    update = resolution.update.name if resolution else before.update_revision
    current = resolution.current.name if resolution else before.current_revision
    updated = [r for r in rolesets if r.revision == update and _is_updated(r)]
    counted = StormServiceStatus(
        observed_generation=storm.generation,
        replicas=len(rolesets),
        ready_replicas=sum(r.is_ready for r in rolesets),
        not_ready_replicas=sum(not r.is_ready for r in rolesets),
        current_replicas=sum(r.revision == current for r in rolesets),
        updated_replicas=len(updated),
        updated_ready_replicas=sum(r.is_ready and _is_updated(r, ready=True) for r in updated),
        current_revision=current,
        update_revision=update,
        collision_count=collisions,
        scaling_target_selector=f"{orchestration.STORM_LABEL}={storm.name}",
        role_statuses=_summed(rolesets, update),
        conditions=before.conditions,
    )
    return counted.model_copy(update={"conditions": _conditions(view, counted, error, now)})


def _is_updated(roleset: RoleSet, *, ready: bool = False) -> bool:
    """Every reported role has all its replicas updated. One without status yet counts as updated."""
    wanted = {role.name: role.wanted for role in roleset.spec.roles}
    return roleset.is_observed and all(
        (s.updated_ready_replicas if ready else s.updated_replicas) == wanted[s.name]
        for s in roleset.status.roles
        if s.name in wanted
    )


def _summed(rolesets: Sequence[RoleSet], update: str) -> tuple[RoleStatus, ...]:
    sums: dict[str, RoleStatus] = {}
    for roleset in rolesets:
        known = {role.name for role in roleset.spec.roles}
        is_updated = roleset.revision == update
        for s in roleset.status.roles:
            if s.name not in known:
                continue
            so_far = sums.get(s.name, RoleStatus(name=s.name))
            sums[s.name] = RoleStatus(
                name=s.name,
                replicas=so_far.replicas + s.replicas,
                ready_replicas=so_far.ready_replicas + s.ready_replicas,
                not_ready_replicas=so_far.not_ready_replicas + s.not_ready_replicas,
                updated_replicas=so_far.updated_replicas + (s.replicas if is_updated else 0),
                updated_ready_replicas=so_far.updated_ready_replicas + (s.ready_replicas if is_updated else 0),
            )
    return tuple(sums[name] for name in sorted(sums))


def _conditions(view: StormView, counted: StormServiceStatus, error: str, now: datetime) -> tuple[TimedCondition, ...]:
    storm = view.storm
    conditions = _failure(counted.conditions, error, Reason.FAILURE, now)
    is_ready = not error and (
        counted.ready_replicas >= storm.spec.wanted
        and counted.updated_replicas == storm.spec.wanted == counted.replicas
        and counted.current_revision == counted.update_revision
    )
    if is_ready:
        conditions = without(conditions, ConditionType.PROGRESSING)
        conditions = set_timed(conditions, ConditionType.READY, TRUE, Reason.READY, "", now=now)
    else:
        conditions = without(conditions, ConditionType.READY)
        conditions = _progressing(view, conditions, counted, now)
    return _gang_conditions(view, conditions, now)


def _progressing(
    view: StormView, conditions: tuple[TimedCondition, ...], counted: StormServiceStatus, now: datetime
) -> tuple[TimedCondition, ...]:
    storm, spec = view.storm, view.storm.spec
    before = find_timed(conditions, ConditionType.PROGRESSING)
    reason = before.reason if before else ""
    moves = before is None or _has_progressed(storm.status, counted)
    subject = f'StormService "{storm.name}"'
    if spec.paused:
        if reason == Reason.DEADLINE_EXCEEDED:
            return conditions
        verdict = UNKNOWN, Reason.PAUSED, f"{subject} is paused."
    elif reason == Reason.PAUSED:
        verdict = UNKNOWN, Reason.RESUMED, f"{subject} is resumed."
    elif moves:
        verdict = TRUE, Reason.PROCESSING, f"{subject} is progressing."
    elif before is not None and (
        reason == Reason.DEADLINE_EXCEEDED or left_s(before, spec.progress_deadline_seconds, now) <= 0
    ):
        verdict = FALSE, Reason.DEADLINE_EXCEEDED, f"{subject} has timed out progressing."
    else:
        return conditions
    refresh = verdict[1] is Reason.PROCESSING and moves
    return set_timed(conditions, ConditionType.PROGRESSING, *verdict, now=now, refresh=refresh)


def _has_progressed(before: StormServiceStatus, after: StormServiceStatus) -> bool:
    return (
        after.updated_replicas > before.updated_replicas
        or after.replicas - after.updated_replicas < before.replicas - before.updated_replicas
        or after.ready_replicas > before.ready_replicas
        or after.updated_ready_replicas > before.updated_ready_replicas
    )


def left_s(progressing: TimedCondition, deadline_s: int, now: datetime) -> float:
    """Seconds until the deadline, counted from the last progress. A time that cannot be read begins now."""
    try:
        since = datetime.fromisoformat(progressing.last_update_time or "").astimezone(UTC)
    except ValueError:
        since = now
    return deadline_s - (now - since).total_seconds()


def look_again_s(status: StormServiceStatus, paused: bool, deadline_s: int, now: datetime) -> float | None:
    """When a StormService that is not ready wants to be looked at, if nothing wakes it before."""
    if find_timed(status.conditions, ConditionType.READY) is not None:
        return None
    progressing = find_timed(status.conditions, ConditionType.PROGRESSING)
    if paused or progressing is None or progressing.reason == Reason.DEADLINE_EXCEEDED:
        return 15.0
    return min(15.0, max(1.0, left_s(progressing, deadline_s, now) + 1))


def _gang_conditions(
    view: StormView, conditions: tuple[TimedCondition, ...], now: datetime
) -> tuple[TimedCondition, ...]:
    synced, gang_error = ConditionType.POD_GROUP_SYNCED, ConditionType.GANG_ERROR
    using = [r for r in view.rolesets if _uses_volcano(r)]
    if not using:
        return without(conditions, synced, gang_error)
    told_synced = [find_timed(r.status.conditions, synced) for r in using]
    told_error = [(r.name, find_timed(r.status.conditions, gang_error)) for r in using]
    behind = [r.name for r, c in zip(using, told_synced, strict=True) if c is None or c.status != TRUE]
    if behind:
        message = f"pod groups of {', '.join(behind)} are not as asked for"
        conditions = set_timed(conditions, synced, FALSE, Reason.POD_GROUP_INCOMPLETE, message, now=now)
    else:
        conditions = set_timed(conditions, synced, TRUE, Reason.POD_GROUP_SYNCED, "", now=now)
    failing = [f"{name}: {c.reason} {c.message}" for name, c in told_error if c is not None and c.status == TRUE]
    unknown = [name for name, c in told_error if c is None or c.status == UNKNOWN]
    if failing:
        return set_timed(conditions, gang_error, TRUE, Reason.GANG_ERROR, "; ".join(failing), now=now)
    if unknown:
        message = f"nothing is known of {', '.join(unknown)}"
        return set_timed(conditions, gang_error, UNKNOWN, Reason.GANG_UNKNOWN, message, now=now)
    return set_timed(conditions, gang_error, FALSE, Reason.GANG_HEALTHY, "", now=now)


def _uses_volcano(roleset: RoleSet) -> bool:
    strategy = roleset.spec.scheduling_strategy
    chosen = strategy.chosen() if strategy is not None else None
    return chosen is not None and chosen[0] is Scheduler.VOLCANO
