"""What ``aibrix-operator rollout`` says of a StormService, in kubectl's words. Pure: objects in, sentences out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aibrix_operator.api import orchestration
from aibrix_operator.api.orchestration import ConditionType, Reason
from aibrix_operator.stormservice.naming import canonical
from aibrix_operator.stormservice.seen import Body, Revision, StormService


class CannotRoll(Exception):
    """What was asked for cannot be done; the text says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an update is."""

    message: str
    is_done: bool = False
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history."""

    number: int
    name: str
    images: str
    """``role=image,image`` for each role."""
    mark: str
    """``current``, ``update``, both, or nothing."""


def progress(body: Body) -> Progress:
    """How far the update of a StormService is; the last word when it is over."""
    storm = StormService(body)
    status, wanted, subject = storm.status, storm.spec.wanted, f'stormservice "{storm.name}"'
    if status.observed_generation < storm.generation:
        return Progress(f"Waiting for {subject} spec update to be observed...")
    failure = orchestration.find_timed(status.conditions, ConditionType.REPLICA_FAILURE)
    moving = orchestration.find_timed(status.conditions, ConditionType.PROGRESSING)
    if moving is not None and moving.reason == Reason.DEADLINE_EXCEEDED:
        why = f": {failure.message}" if failure is not None else ""
        return Progress(f"error: {subject} exceeded its progress deadline{why}", has_failed=True)
    if failure is not None:
        return Progress(f"Waiting for {subject} rollout to finish: {failure.message}")
    if status.updated_replicas < wanted:
        new = f"{status.updated_replicas} out of {wanted} new replicas have been updated..."
        return Progress(f"Waiting for {subject} rollout to finish: {new}")
    if status.replicas > wanted:
        old = f"{status.replicas - wanted} old replicas are pending termination..."
        return Progress(f"Waiting for {subject} rollout to finish: {old}")
    if status.updated_ready_replicas < wanted or status.current_revision != status.update_revision:
        ready = f"{status.updated_ready_replicas} of {wanted} updated replicas are ready..."
        return Progress(f"Waiting for {subject} rollout to finish: {ready}")
    return Progress(f"{subject} successfully rolled out", is_done=True)


def history(storm: StormService, revisions: Sequence[Revision]) -> list[Entry]:
    """The service's revisions, oldest first."""
    status = storm.status
    marks = {status.current_revision: "current", status.update_revision: "update"}
    if status.current_revision == status.update_revision:
        marks = {status.current_revision: "current"}
    return [
        Entry(r.number, r.name, " ".join(_images(r.template)), marks.get(r.name, ""))
        for r in sorted(revisions, key=lambda r: r.number)
    ]


def numbered(revisions: Sequence[Revision], number: int) -> Revision:
    """The revision of that number. CannotRoll when there is none."""
    found = next((r for r in revisions if r.number == number), None)
    if found is None:
        known = ", ".join(str(r.number) for r in sorted(revisions, key=lambda r: r.number)) or "none"
        raise CannotRoll(f"unable to find revision {number}: there are {known}")
    return found


def undone(storm: StormService, revisions: Sequence[Revision], number: int) -> tuple[dict[str, Any] | None, str]:
    """The object with the template of revision ``number`` (0: the one before the newest), and what to say.

    None where that is its template already. CannotRoll while it is paused, or where there is no such revision.
    """
    if storm.spec.paused:
        raise CannotRoll(
            f'you cannot rollback a paused stormservice; resume it first with "rollout resume {storm.name}"'
        )
    if number:
        found = numbered(revisions, number)
    else:
        present = canonical(_template(storm))
        older = [r for r in revisions if canonical(r.template) != present]
        if not older:
            raise CannotRoll(f'no rollout history found for stormservice "{storm.name}"')
        found = max(older, key=lambda r: r.number)
    if canonical(found.template) == canonical(_template(storm)):
        return None, f"stormservice.{orchestration.GROUP}/{storm.name} skipped rollback (its template is that already)"
    spec = {**storm.body["spec"], "template": found.template}
    return {**storm.body, "spec": spec}, f"stormservice.{orchestration.GROUP}/{storm.name} rolled back"


def paused(storm: StormService, is_to_pause: bool) -> tuple[dict[str, Any], str]:
    """The patch of a pause or of its end, and what to say. CannotRoll where it is so already."""
    if storm.spec.paused is is_to_pause:
        raise CannotRoll(f'stormservice "{storm.name}" is {"already paused" if is_to_pause else "not paused"}')
    word = "paused" if is_to_pause else "resumed"
    return {"spec": {"paused": is_to_pause}}, f"stormservice.{orchestration.GROUP}/{storm.name} {word}"


def _template(storm: StormService) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (storm.body.get("spec") or {}).get("template") or {}
    return found


def _images(template: Mapping[str, Any]) -> list[str]:
    roles = (template.get("spec") or {}).get("roles") or ()
    return [f"{role['name']}={','.join(str(c.get('image', '')) for c in _containers(role))}" for role in roles]


def _containers(role: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = ((role.get("template") or {}).get("spec") or {}).get("containers") or ()
    return found
