"""The next steps of one StormService: its revision, its Service, the number of its RoleSets, and then their update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aibrix_operator.api import orchestration
from aibrix_operator.api.orchestration import Reason
from aibrix_operator.controller.steps import Create, Note, Replace, SetFinalizer, Step
from aibrix_operator.stormservice import naming, render, revisions, rollout, sidecar
from aibrix_operator.stormservice.outline import Outline, delete, patch, tell
from aibrix_operator.stormservice.resources import ROLESETS, SERVICES
from aibrix_operator.stormservice.revisions import Resolution, RevisionRef
from aibrix_operator.stormservice.rollout import Bounds, Copy
from aibrix_operator.stormservice.seen import RoleSet, Seen, StormService, StormView, index_of

LOOK_AGAIN_S = 15.0


@dataclass(frozen=True)
class Decision:
    """The plan, and what the status is written by."""

    outline: Outline
    resolution: Resolution | None = None
    """None while the object is deleted, or has no template."""


def limits_of(storm: StormService) -> Bounds:
    """RoleSets that are changed in place are neither surged nor spared."""
    spec = storm.spec
    if spec.is_in_place:
        return Bounds(spec.wanted, 0, spec.wanted)
    return rollout.bounds(spec.wanted, spec.update_strategy.max_surge, spec.update_strategy.max_unavailable)


def decide(view: StormView, collisions: int, *, is_foreign: bool = False) -> Decision:
    """What to do now. ValidationError when the spec cannot be read. ``collisions``: as the status is to say;
    ``is_foreign``: see ``revisions.resolve``."""
    storm = view.storm
    if storm.is_terminating:
        return Decision(_finalize(view))
    if not storm.has_finalizer(orchestration.STORM_FINALIZER):
        return Decision(Outline((SetFinalizer(orchestration.STORM_FINALIZER, True),)))
    template = (storm.body.get("spec") or {}).get("template") or {}
    if storm.spec.template.spec is None:
        return Decision(Outline(problem="bad stormService template: spec.template.spec is missing"))
    template = sidecar.with_sidecar(template, storm.annotations)
    carried = {r.revision for r in view.rolesets}
    resolution = revisions.resolve(storm, view.revisions, template, carried, collisions, is_foreign=is_foreign)
    if resolution.steps:
        return Decision(Outline(resolution.steps), resolution)
    trimming = tuple(revisions.truncate(storm, view.revisions, resolution, carried))
    service, notes, problem = _service(view)
    problem = problem or _mismatch(storm)
    if service or problem:
        return Decision(Outline((*service, *trimming), tuple(notes), problem=problem), resolution)
    copies = _copies(view, resolution)
    steps = _scale(view, resolution, copies)
    if not steps and not storm.spec.paused:
        steps = _roll(view, resolution, copies)
    return Decision(Outline((*steps, *trimming)), resolution)


def _finalize(view: StormView) -> Outline:
    if not view.storm.has_finalizer(orchestration.STORM_FINALIZER):
        return Outline()
    if view.rolesets:
        going = tuple(delete(ROLESETS, r) for r in view.rolesets if not r.is_terminating)
        return Outline(going, look_again_s=LOOK_AGAIN_S)
    return Outline((SetFinalizer(orchestration.STORM_FINALIZER, False),))


def _mismatch(storm: StormService) -> str:
    labels = storm.spec.template.metadata.labels or {}
    if storm.spec.selector.matches(labels):
        return ""
    return "spec.selector does not match the labels of spec.template.metadata: no RoleSet can be made"


# --- the Service


def _service(view: StormView) -> tuple[list[Step], list[Note], str]:
    """Make or mend the headless Service; a problem where its name is somebody else's."""
    storm, present = view.storm, view.service
    wanted = {
        "clusterIP": "None",
        "selector": {orchestration.STORM_LABEL: storm.name},
        "publishNotReadyAddresses": True,
    }
    told = [tell(Reason.SERVICE_SYNCED, f"headless Service {storm.name} synced")]
    if present is None:
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": storm.name,
                "namespace": storm.namespace,
                "labels": dict(storm.labels),
                "ownerReferences": [render.owner_reference("StormService", storm)],
            },
            "spec": {**wanted, "type": "ClusterIP"},
        }
        return [Create(SERVICES, body)], told, ""
    if not present.is_controlled_by(storm.uid):
        return [], [], f"Service {storm.name} exists and belongs to somebody else: rename one of the two"
    if present.is_terminating:
        return [], [], f"Service {storm.name} is being deleted"
    return _mended(present, wanted, told)


def _mended(present: Seen, wanted: Mapping[str, Any], told: list[Note]) -> tuple[list[Step], list[Note], str]:
    spec: Mapping[str, Any] = present.body.get("spec") or {}
    drift = {key: value for key, value in wanted.items() if spec.get(key) != value}
    if spec.get("type", "ClusterIP") != "ClusterIP":
        drift["type"] = "ClusterIP"
    if not drift:
        return [], [], ""
    if "selector" in drift:  # a merge patch keeps what it does not name
        drift["selector"] = dict.fromkeys(spec.get("selector") or {}) | dict(wanted["selector"])
    return [patch(SERVICES, present, {"spec": drift})], told, ""


# --- RoleSets


def _copies(view: StormView, resolution: Resolution) -> list[Copy]:
    return [
        Copy(
            uid=r.uid,
            is_updated=r.revision == resolution.update.name,
            is_ready=r.is_ready,
            is_terminating=r.is_terminating,
            born=r.born,
        )
        for r in sorted(view.rolesets, key=lambda r: r.born)
    ]


def _scale(view: StormView, resolution: Resolution, copies: list[Copy]) -> list[Step]:
    keeps_shares = view.storm.spec.paused and resolution.is_moving
    shares = rollout.scale_copies(limits_of(view.storm), copies, keeps_shares=keeps_shares)
    return _carried_out(view, resolution, shares)


def _roll(view: StormView, resolution: Resolution, copies: list[Copy]) -> list[Step]:
    if view.storm.spec.is_in_place:
        return [
            Replace(ROLESETS, _overwritten(view.storm, roleset, resolution))
            for roleset in view.rolesets
            if not roleset.is_terminating and roleset.revision != resolution.update.name
        ]
    return _carried_out(view, resolution, rollout.roll_copies(limits_of(view.storm), copies))


def _carried_out(view: StormView, resolution: Resolution, shares: rollout.Shares) -> list[Step]:
    by_uid = {r.uid: r for r in view.rolesets}
    taken = {index_of(r.annotations.get(orchestration.ROLESET_INDEX)) for r in view.rolesets}
    free = (index for index in range(len(taken) + shares.create_current + shares.create_updated) if index not in taken)
    settled = Resolution(resolution.current, resolution.current)
    made = [settled] * shares.create_current + [resolution] * shares.create_updated
    creates: list[Step] = [Create(ROLESETS, roleset(view.storm, of, next(free))) for of in made]
    return [*creates, *(delete(ROLESETS, by_uid[uid]) for uid in shares.delete)]


def roleset(storm: StormService, resolution: Resolution, index: int) -> dict[str, Any]:
    """A RoleSet of the update revision."""
    labels, annotations = _marks(storm, resolution)
    return {
        "apiVersion": orchestration.API_VERSION,
        "kind": "RoleSet",
        "metadata": {
            "generateName": naming.roleset_prefix(storm.name),
            "namespace": storm.namespace,
            "labels": labels,
            "annotations": {**annotations, orchestration.ROLESET_INDEX: str(index)},
            "finalizers": [orchestration.ROLESET_FINALIZER],
            "ownerReferences": [render.owner_reference("StormService", storm)],
        },
        "spec": resolution.update.template["spec"],
    }


def _overwritten(storm: StormService, present: RoleSet, resolution: Resolution) -> dict[str, Any]:
    """``present`` brought to the update revision, with its index and what it knows of nodes."""
    labels, annotations = _marks(storm, resolution)
    for kept in (orchestration.ROLESET_INDEX, orchestration.HISTORICAL_NODES):
        if kept in present.annotations:
            annotations[kept] = present.annotations[kept]
    metadata = {**present.metadata, "labels": labels, "annotations": annotations}
    body = {key: value for key, value in present.body.items() if key not in ("status", "apiVersion", "kind")}
    spec = resolution.update.template["spec"]
    return {"apiVersion": orchestration.API_VERSION, "kind": "RoleSet", **body, "metadata": metadata, "spec": spec}


def _marks(storm: StormService, resolution: Resolution) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of a RoleSet of the update revision, its index apart."""
    metadata = resolution.update.template.get("metadata") or {}
    revision: RevisionRef = resolution.update
    labels = {
        **(metadata.get("labels") or {}),
        orchestration.STORM_LABEL: storm.name,
        orchestration.STORM_REVISION_LABEL: revision.name,
    }
    annotations = {**(metadata.get("annotations") or {}), orchestration.REVISION_ANNOTATION: revision.name}
    for role, of in revisions.role_revisions(resolution).items():
        annotations[f"{orchestration.ROLE_REVISION}.{role}"] = str(of.number)
        annotations[f"{orchestration.ROLE_REVISION_NAME}.{role}"] = of.name
    return labels, annotations
