"""Which nodes a RoleSet's Pods ran on, so that their successors may go back there.

Kept as JSON in one annotation of the RoleSet: ``{"replicaSlots": {"<role>/<i>": node}, "roles": {"<role>": [node]}}``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from aibrix_operator.api import orchestration
from aibrix_operator.api.roleset import Role, RoleSetSpec
from aibrix_operator.stormservice import render
from aibrix_operator.stormservice.seen import Pod, RoleSet, index_of

_NODES_PER_ROLE = 8


@dataclass(frozen=True)
class Bindings:
    """Nodes by slot and by role, newest first."""

    slots: dict[str, str] = field(default_factory=dict)
    roles: dict[str, list[str]] = field(default_factory=dict)

    def to_annotation(self) -> str:
        """The same text for the same nodes."""
        return json.dumps({"replicaSlots": self.slots, "roles": self.roles}, sort_keys=True, separators=(",", ":"))


def is_asked_for(spec: RoleSetSpec) -> bool:
    """Whether any role wants its Pods back where they were."""
    return any(_wants_history(role) for role in spec.roles)


def read(roleset: RoleSet) -> Bindings | None:
    """What the annotation says: nothing when it is absent, None when it cannot be read."""
    text = roleset.annotations.get(orchestration.HISTORICAL_NODES)
    if not text:
        return Bindings()
    try:
        said = json.loads(text)
        slots = {str(k): str(v) for k, v in (said.get("replicaSlots") or {}).items()}
        roles = {str(k): [str(node) for node in v] for k, v in (said.get("roles") or {}).items()}
    except (ValueError, AttributeError, TypeError):
        return None
    return Bindings(slots, roles)


def refreshed(known: Bindings | None, spec: RoleSetSpec, pods: Sequence[Pod]) -> Bindings:
    """``known`` brought up to date with scheduled Pods, oldest first, and cut to the roles and slots that exist."""
    stateful = {role.name: role.stateful for role in spec.roles}
    slots = dict(known.slots) if known else {}
    roles = {name: list(nodes) for name, nodes in known.roles.items()} if known else {}
    for pod in sorted(pods, key=lambda p: (p.born[0], p.namespace, p.name)):
        role = pod.labels.get(orchestration.ROLE_LABEL, "")
        if not pod.node or role not in stateful:
            continue
        if not stateful[role]:
            others = [node for node in roles.get(role, ()) if node != pod.node]
            roles[role] = [pod.node, *others][:_NODES_PER_ROLE]
        elif pod.slot is not None:
            slots[f"{role}/{pod.slot}"] = pod.node
    kept = {role.name: role.wanted for role in spec.roles if role.stateful}
    return Bindings(
        {key: node for key, node in sorted(slots.items()) if _is_slot(key, kept)},
        {name: nodes for name, nodes in sorted(roles.items()) if stateful.get(name) is False},
    )


def nodes_for(
    known: Bindings | None, spec: RoleSetSpec, role: Role, slot: int | None, *, is_rollout: bool, slot_is_held: bool
) -> list[str]:
    """The nodes that a new Pod prefers; none where the template or the topology decides already.

    A stateful role's Pod prefers its slot's node, unless another one still holds the slot. A stateless role's prefers
    the role's nodes when an update made it.
    """
    if known is None or not _wants_history(role) or role.group_size > 1 or _is_bound(role, spec):
        return []
    if not role.stateful:
        return known.roles.get(role.name, []) if is_rollout else []
    node = None if slot_is_held else known.slots.get(f"{role.name}/{slot}")
    return [node] if node else []


def _wants_history(role: Role) -> bool:
    scheduling = role.update_strategy.replacement_scheduling
    return scheduling is not None and scheduling.historical_node is not None


def _is_bound(role: Role, spec: RoleSetSpec) -> bool:
    affinity = ((role.template.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    policy = spec.topology_policy
    return bool(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")) or (
        policy is not None and policy.mode == "Required" and policy.key == render.HOSTNAME_KEY
    )


def _is_slot(key: str, kept: dict[str, int]) -> bool:
    role, _, text = key.rpartition("/")
    slot = index_of(text)
    return role in kept and slot is not None and slot < kept[role]
