"""Pods and PodSets as a RoleSet makes them, and the members of a PodSet."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from aibrix_operator.api import gang, orchestration
from aibrix_operator.api.gang import Scheduler, SchedulingStrategy
from aibrix_operator.api.orchestration import PODSET_FINALIZER
from aibrix_operator.api.roleset import Role, TopologyPolicy, TopologyScope
from aibrix_operator.stormservice import naming
from aibrix_operator.stormservice.seen import PodSet, RoleSet, Seen

HOSTNAME_KEY = "kubernetes.io/hostname"
NODE_WEIGHT = TOPOLOGY_WEIGHT = 100


def owner_reference(kind: str, owner: Seen) -> dict[str, Any]:
    """The controller reference to ``owner``."""
    return {
        "apiVersion": orchestration.API_VERSION,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod(
    roleset: RoleSet, role: Role, hash_: str, slot: int | None, *, nodes: Sequence[str] = (), gang_served: bool = False
) -> dict[str, Any]:
    """One replica of a role of single Pods. ``nodes`` are preferred."""
    template = _role_template(roleset, role, hash_, slot)
    metadata, spec = template["metadata"], template["spec"]
    if slot is None:
        metadata["generateName"] = naming.pool_prefix(roleset.name, role.name)
    else:
        metadata["name"] = naming.slot_name(roleset.name, role.name, hash_, slot)
        spec["hostname"] = metadata["name"]
    if roleset.storm:
        spec["subdomain"] = roleset.storm
    metadata["namespace"] = roleset.namespace
    metadata["ownerReferences"] = [owner_reference("RoleSet", roleset)]
    mark_gang(template, roleset.spec.scheduling_strategy, roleset.name, role.name, is_served=gang_served)
    if nodes:
        prefer_nodes(spec, nodes)
    return {"apiVersion": "v1", "kind": "Pod", **template}


def podset(roleset: RoleSet, role: Role, hash_: str, slot: int, *, gang_served: bool = False) -> dict[str, Any]:
    """One replica of a role of several Pods."""
    template = _role_template(roleset, role, hash_, slot)
    mark_gang(template, roleset.spec.scheduling_strategy, roleset.name, role.name, is_served=gang_served)
    labels = {
        **{key: value for key, value in template["metadata"]["labels"].items() if key in _PODSET_LABELS},
        orchestration.REPLICA_INDEX: str(slot),
    }
    annotations = {orchestration.REPLICA_INDEX: str(slot)}
    if orchestration.ROLESET_INDEX in roleset.annotations:
        annotations[orchestration.ROLESET_INDEX] = roleset.annotations[orchestration.ROLESET_INDEX]
    spec: dict[str, Any] = {"podGroupSize": role.group_size, "template": template, "stateful": role.stateful}
    if role.drain is not None:
        spec["drain"] = role.drain.model_dump(by_alias=True, exclude_none=True)
    if role.scheduling_strategy is not None:
        spec["schedulingStrategy"] = role.scheduling_strategy.model_dump(by_alias=True, exclude_none=True)
    return {
        "apiVersion": orchestration.API_VERSION,
        "kind": "PodSet",
        "metadata": {
            "name": naming.slot_name(roleset.name, role.name, hash_, slot),
            "namespace": roleset.namespace,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [PODSET_FINALIZER],
            "ownerReferences": [owner_reference("RoleSet", roleset)],
        },
        "spec": spec,
    }


_PODSET_LABELS = frozenset(
    {orchestration.STORM_LABEL, orchestration.ROLESET_LABEL, orchestration.ROLE_LABEL, orchestration.HASH_LABEL}
    | {orchestration.ROLE_REVISION, orchestration.ROLE_REVISION_NAME}
)


def member(podset: PodSet, index: int, *, gang_served: bool = False) -> dict[str, Any]:
    """One Pod of a PodSet."""
    template = _copied(podset.spec.template)
    metadata, spec = template["metadata"], template["spec"]
    metadata["name"] = naming.shortened(f"{podset.name}-{index}")
    metadata["namespace"] = podset.namespace
    metadata["ownerReferences"] = [owner_reference("PodSet", podset)]
    metadata["labels"] = {
        **podset.labels,
        **metadata["labels"],
        orchestration.PODSET_LABEL: podset.name,
        orchestration.POD_GROUP_INDEX: str(index),
    }
    metadata["annotations"] = {**podset.annotations, **metadata["annotations"]}
    spec["hostname"] = metadata["name"]
    storm = podset.labels.get(orchestration.STORM_LABEL, "")
    if storm:
        spec["subdomain"] = storm
    env = {
        "PODSET_NAME": podset.name,
        "POD_GROUP_INDEX": str(index),
        "POD_GROUP_SIZE": str(podset.spec.pod_group_size),
    }
    for container in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
        prepend_env(container, env)
    role = podset.labels.get(orchestration.ROLE_LABEL, "")
    mark_gang(template, podset.spec.scheduling_strategy, podset.name, role, is_served=gang_served)
    return {"apiVersion": "v1", "kind": "Pod", **template}


def _role_template(roleset: RoleSet, role: Role, hash_: str, slot: int | None) -> dict[str, Any]:
    """The role's Pod template with our labels, annotations, variables and topology in it."""
    template = _copied(role.template)
    metadata, spec = template["metadata"], template["spec"]
    labels, annotations = metadata["labels"], metadata["annotations"]
    labels |= {key: roleset.labels[key] for key in orchestration.INHERITED_LABELS if key in roleset.labels}
    labels |= {
        orchestration.ROLESET_LABEL: roleset.name,
        orchestration.ROLE_LABEL: role.name,
        orchestration.HASH_LABEL: hash_,
    }
    if roleset.storm:
        labels[orchestration.STORM_LABEL] = roleset.storm
    labels |= revision_labels(roleset, role.name)
    if orchestration.ROLESET_INDEX in roleset.annotations:
        annotations[orchestration.ROLESET_INDEX] = roleset.annotations[orchestration.ROLESET_INDEX]
    env = {
        "STORM_SERVICE_NAME": roleset.storm,
        "ROLESET_NAME": roleset.name,
        "ROLESET_INDEX": roleset.annotations.get(orchestration.ROLESET_INDEX, ""),
        "ROLE_NAME": role.name,
        "ROLE_TEMPLATE_HASH": hash_,
    }
    if slot is not None:
        env["ROLE_REPLICA_INDEX"] = str(slot)
        if role.group_size == 1:
            labels[orchestration.REPLICA_INDEX] = annotations[orchestration.REPLICA_INDEX] = str(slot)
    for container in spec.get("containers", ()):
        prepend_env(container, env)
    add_topology(spec, roleset.spec.topology_policy, labels)
    return template


def revision_labels(roleset: RoleSet, role: str) -> dict[str, str]:
    """Which revision the role's template comes from, as its StormService says."""
    found = {}
    for label in (orchestration.ROLE_REVISION, orchestration.ROLE_REVISION_NAME):
        value = roleset.annotations.get(f"{label}.{role}")
        if value is not None:
            found[label] = value
    return found


def _copied(template: Mapping[str, Any]) -> dict[str, Any]:
    """A template that may be changed, with the maps that are always written to."""
    made = copy.deepcopy(dict(template))
    metadata = dict(made.get("metadata") or {})
    metadata["labels"] = dict(metadata.get("labels") or {})
    metadata["annotations"] = dict(metadata.get("annotations") or {})
    return {"metadata": metadata, "spec": dict(made.get("spec") or {})}


def prepend_env(container: dict[str, Any], env: Mapping[str, str]) -> None:
    """Our variables first, so that the user's may refer to them; the user's of the same names are dropped."""
    own = [{"name": name, "value": value} for name, value in env.items()]
    container["env"] = own + [entry for entry in container.get("env") or () if entry.get("name") not in env]


def mark_gang(
    template: dict[str, Any], strategy: SchedulingStrategy | None, group: str, role: str, *, is_served: bool
) -> None:
    """Say that the Pod belongs to PodGroup ``group``.

    Volcano becomes its scheduler only where PodGroups are served: elsewhere nobody would schedule it.
    """
    chosen = strategy.chosen() if strategy is not None else None
    if chosen is None:
        return
    scheduler, _ = chosen
    kind = gang.POD_GROUPS[scheduler]
    metadata, spec = template["metadata"], template["spec"]
    metadata["labels"].update(dict.fromkeys(kind.labels, group))
    metadata["annotations"].update(dict.fromkeys(kind.annotations, group))
    if scheduler is Scheduler.VOLCANO:
        metadata["labels"][gang.VOLCANO_TASK] = metadata["annotations"][gang.VOLCANO_TASK] = role
        if is_served:
            spec.setdefault("schedulerName", gang.VOLCANO_SCHEDULER)


def add_topology(spec: dict[str, Any], policy: TopologyPolicy | None, labels: Mapping[str, str]) -> None:
    """Keep the Pod beside those of the policy's scope. A term that is there already is not repeated."""
    if policy is None:
        return
    wanted: tuple[str, ...] = {
        TopologyScope.STORM_SERVICE: (orchestration.STORM_LABEL,),
        TopologyScope.ROLESET: (orchestration.STORM_LABEL, orchestration.ROLESET_LABEL),
        TopologyScope.ROLE: (orchestration.STORM_LABEL, orchestration.ROLE_LABEL),
    }[policy.scope]
    if not policy.key or any(not labels.get(label) for label in wanted):
        return
    term = {"labelSelector": {"matchLabels": {label: labels[label] for label in wanted}}, "topologyKey": policy.key}
    if policy.mode == "Required":
        _add_affinity(spec, "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", term)
    else:
        preference = {"weight": TOPOLOGY_WEIGHT, "podAffinityTerm": term}
        _add_affinity(spec, "podAffinity", "preferredDuringSchedulingIgnoredDuringExecution", preference)


def prefer_nodes(spec: dict[str, Any], nodes: Sequence[str]) -> None:
    """Prefer ``nodes``, as strongly as a preference can be."""
    _add_affinity(spec, "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution", node_preference(nodes))


def node_preference(nodes: Sequence[str]) -> dict[str, Any]:
    """The term of a preference for ``nodes``."""
    expression: dict[str, Any] = {"key": HOSTNAME_KEY, "operator": "In", "values": list(nodes)}
    return {"weight": NODE_WEIGHT, "preference": {"matchExpressions": [expression]}}


def _add_affinity(spec: dict[str, Any], kind: str, field: str, entry: dict[str, Any]) -> None:
    affinity = dict(spec.get("affinity") or {})
    chosen = dict(affinity.get(kind) or {})
    entries = list(chosen.get(field) or ())
    if entry not in entries:
        entries.append(entry)
    chosen[field] = entries
    affinity[kind] = chosen
    spec["affinity"] = affinity
