"""The revisions of a StormService's template: which one it goes to, which it comes from, which are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aibrix_operator.controller.steps import Create, Replace, Step
from aibrix_operator.stormservice import naming, render
from aibrix_operator.stormservice.outline import delete, patch
from aibrix_operator.stormservice.resources import REVISIONS
from aibrix_operator.stormservice.seen import Revision, StormService

NAME_LABEL = "name"
HASH_LABEL = "controller.kubernetes.io/hash"
DEFAULT_HISTORY = 10


@dataclass(frozen=True)
class RevisionRef:
    """A revision by name and number, with the template that it stands for."""

    name: str
    number: int
    template: Mapping[str, Any]

    def role_hashes(self) -> dict[str, str]:
        """Role → hash of its Pod template."""
        roles = (self.template.get("spec") or {}).get("roles") or ()
        return {str(role["name"]): naming.template_hash(role.get("template") or {}) for role in roles}


@dataclass(frozen=True)
class Resolution:
    """Where a StormService comes from and where it goes."""

    update: RevisionRef
    current: RevisionRef
    steps: tuple[Step, ...] = ()
    """What makes the update revision so."""

    @property
    def is_moving(self) -> bool:
        """The two differ."""
        return self.update.name != self.current.name


def resolve(
    storm: StormService,
    revisions: Collection[Revision],
    template: Mapping[str, Any],
    carried: Collection[str],
    collisions: int,
    *,
    is_foreign: bool = False,
) -> Resolution:
    """The revision of ``template``: the newest, an older one that becomes the newest again, or a new one.

    ``carried``: names of the revisions that RoleSets carry. Where none carries the current revision any more, the
    service has arrived at the update revision. ``collisions``: how often a new revision's name was taken.
    ``is_foreign``: the API server does not let us renumber a revision as we write our own.
    """
    known = sorted(revisions, key=lambda r: (r.number, r.name))
    text = naming.canonical(template)
    newest = known[-1].number if known else 0
    equal = [r for r in known if naming.canonical(r.template) == text]
    steps: tuple[Step, ...] = ()
    if equal:
        found = equal[-1]
        number = found.number
        if number != newest:
            number = newest + 1
            steps = (_renumbered(found, number, is_foreign=is_foreign),)
        update = RevisionRef(found.name, number, found.template)
    else:
        update, step = _new(storm, template, text, newest + 1, collisions)
        steps = (step,)
    of_status = next((r for r in known if r.name == storm.status.current_revision), None)
    if of_status is None or of_status.name not in carried or of_status.name == update.name:
        return Resolution(update, update, steps)
    return Resolution(update, RevisionRef(of_status.name, of_status.number, of_status.template), steps)


def _renumbered(revision: Revision, number: int, *, is_foreign: bool) -> Step:
    """The data of a revision are immutable byte by byte, blanks included (seen on 1.37). A replacement brings them back
    as our client writes them, a patch without blanks, as Go's clients do."""
    if is_foreign:
        return patch(REVISIONS, revision, {"revision": number})
    whole = {**revision.body, "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number}
    return Replace(REVISIONS, whole)


def _new(
    storm: StormService, template: Mapping[str, Any], text: str, number: int, collisions: int
) -> tuple[RevisionRef, Create]:
    hash_ = naming.short_hash(text + (f"/{collisions}" if collisions else ""))
    name = naming.revision_name(storm.name, hash_)
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": storm.namespace,
            "labels": {NAME_LABEL: storm.name, HASH_LABEL: hash_},
            "ownerReferences": [render.owner_reference("StormService", storm)],
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }
    return RevisionRef(name, number, template), Create(REVISIONS, body)


def truncate(
    storm: StormService, revisions: Collection[Revision], resolution: Resolution, carried: Collection[str]
) -> list[Step]:
    """Delete the oldest of those that nothing uses, beyond the limit."""
    in_use = {resolution.update.name, resolution.current.name, *carried}
    idle = sorted((r for r in revisions if r.name not in in_use and not r.is_terminating), key=lambda r: r.number)
    wanted = storm.spec.revision_history_limit
    limit = DEFAULT_HISTORY if wanted is None else max(0, wanted)
    return [delete(REVISIONS, r) for r in idle[: max(0, len(idle) - limit)]]


def role_revisions(resolution: Resolution) -> dict[str, RevisionRef]:
    """Role → the revision that its Pods come from: the current one where the role's Pod template is unchanged."""
    before, after = resolution.current.role_hashes(), resolution.update.role_hashes()
    return {
        role: resolution.current if before.get(role) == hash_ else resolution.update for role, hash_ in after.items()
    }
