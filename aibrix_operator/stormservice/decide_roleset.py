"""The next steps of one RoleSet: scale every role; when that has nothing to do, update roles in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from aibrix_operator.api import orchestration
from aibrix_operator.api.orchestration import Reason
from aibrix_operator.api.podset import PodSetPhase
from aibrix_operator.api.roleset import Role, RoleOrder, RoleUpdateType
from aibrix_operator.controller.steps import Create, Note, SetFinalizer, Step
from aibrix_operator.stormservice import gangs, history, in_place, likeness, render, rollout
from aibrix_operator.stormservice.drain import DrainReason, Leave
from aibrix_operator.stormservice.history import Bindings
from aibrix_operator.stormservice.outline import Outline, delete, patch, sooner, tell, warn
from aibrix_operator.stormservice.resources import PODS, PODSETS, ROLESETS
from aibrix_operator.stormservice.rollout import Copy, RoleCopies
from aibrix_operator.stormservice.seen import Pod, PodSet, RoleSetView, Served


@dataclass(frozen=True)
class RoleInPass:
    """One role with what there is of it."""

    role: Role
    hash: str
    pods: tuple[Pod, ...]
    podsets: tuple[PodSet, ...]

    @property
    def is_grouped(self) -> bool:
        """Its replicas are PodSets."""
        return self.role.group_size > 1

    @cached_property
    def copies(self) -> RoleCopies:
        """The role as the planners see it."""
        strategy = self.role.update_strategy
        limits = rollout.bounds(self.role.wanted, strategy.max_surge, strategy.max_unavailable)
        seen = (
            [podset_copy(p, self.hash) for p in self.podsets]
            if self.is_grouped
            else [pod_copy(p, self.hash, has_slots=self.role.stateful) for p in self.pods]
        )
        has_slots = self.is_grouped or self.role.stateful
        return RoleCopies(self.role.name, limits, tuple(seen), has_slots, self.role.upgrade_order)

    @property
    def orphans(self) -> tuple[Pod | PodSet, ...]:
        """Objects of the kind that the role had before its podGroupSize changed."""
        return self.pods if self.is_grouped else self.podsets


def pod_copy(pod: Pod, hash_: str, *, has_slots: bool = True) -> Copy:
    """A Pod as the planners see it."""
    target = in_place.target_of(pod)
    return Copy(
        uid=pod.uid,
        is_updated=pod.labels.get(orchestration.HASH_LABEL) == hash_ and not target,
        is_ready=pod.is_ready,
        is_terminating=pod.is_terminating,
        has_ended=pod.has_ended,
        slot=pod.slot if has_slots else None,
        is_leaving=pod.is_draining,
        is_updating=target == hash_,
        born=pod.born,
    )


def podset_copy(podset: PodSet, hash_: str) -> Copy:
    """A PodSet as the planners see it."""
    return Copy(
        uid=podset.uid,
        is_updated=podset.labels.get(orchestration.HASH_LABEL) == hash_,
        is_ready=podset.status.phase is PodSetPhase.READY,
        is_terminating=podset.is_terminating,
        slot=podset.slot,
        born=podset.born,
    )


def roles_of(view: RoleSetView) -> list[RoleInPass]:
    """The roles of the spec, each with its Pods and PodSets."""
    return [
        RoleInPass(
            role,
            view.roleset.hashes[role.name],
            tuple(p for p in view.pods if p.labels.get(orchestration.ROLE_LABEL) == role.name),
            tuple(p for p in view.podsets if p.labels.get(orchestration.ROLE_LABEL) == role.name),
        )
        for role in view.roleset.spec.roles
    ]


def decide(view: RoleSetView, now: datetime, max_creates: int) -> Outline:
    """What to do now. ValidationError when the spec cannot be read. What is made beyond ``max_creates`` is left to
    later passes."""
    roleset = view.roleset
    if roleset.is_terminating:
        return _finalize(view)
    if not roleset.has_finalizer(orchestration.ROLESET_FINALIZER):
        return Outline((SetFinalizer(orchestration.ROLESET_FINALIZER, True),))
    return _Pass(view, now, max_creates).plan()


def _finalize(view: RoleSetView) -> Outline:
    """PodSets first, which drain their own Pods; then Pods, at once; then the PodGroup."""
    roleset = view.roleset
    if not roleset.has_finalizer(orchestration.ROLESET_FINALIZER):
        return Outline()
    podsets: list[Step] = [delete(PODSETS, p) for p in view.podsets if not p.is_terminating]
    if view.podsets:
        return Outline(tuple(podsets), look_again_s=15.0)
    pods: list[Step] = [delete(PODS, p) for p in view.pods if not p.is_terminating]
    if view.pods:
        return Outline(tuple(pods), look_again_s=15.0)
    groups = gangs.remove(roleset, roleset.spec.scheduling_strategy, view.groups)
    return Outline((*groups, SetFinalizer(orchestration.ROLESET_FINALIZER, False)))


@dataclass
class _Pass:
    """One pass over a RoleSet that is there to stay."""

    view: RoleSetView
    now: datetime
    max_creates: int
    leave: Leave = field(default_factory=Leave)
    creates: list[Step] = field(default_factory=list)
    gates: list[Step] = field(default_factory=list)
    patches: list[Step] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    look_again_s: float | None = None
    bindings: Bindings | None = None
    going: dict[str, frozenset[str]] = field(default_factory=dict)
    """Role → what scaling wants gone."""
    replaced: set[str] = field(default_factory=set)
    """UIDs that the update wants gone."""

    @property
    def serves_groups(self) -> bool:
        """PodGroups of the RoleSet's scheduler are served."""
        return self.view.groups.served is Served.YES

    def plan(self) -> Outline:
        """All of it."""
        roleset = self.view.roleset
        first, told = gangs.plan(roleset, "RoleSet", roleset.spec.scheduling_strategy, self.view.groups)
        self.look_again_s = gangs.look_again_s(roleset.spec.scheduling_strategy, self.view.groups)
        first += self._remember_nodes()
        if first:
            return Outline(tuple(first), tuple(told))
        roles = roles_of(self.view)
        self._remove_strays(roles)
        scaled = [r for r in roles if not r.orphans]
        for role in scaled:
            self._advance(role)
            self._adapt_podsets(role)
        has_scaled = False
        for role in scaled:
            has_scaled |= self._scale(role)
        if not has_scaled and not self.leave.steps and len(scaled) == len(roles):
            self._roll(roles)
        self._spare(roles)
        self._warn_of_topology(roles)
        steps = (*self.gates, *self.patches, *self.creates[: self.max_creates], *self.leave.steps)
        notes = (*told, *self.notes, *self.leave.notes)
        return Outline(steps, notes, sooner(self.look_again_s, self.leave.look_again_s))

    def _remember_nodes(self) -> list[Step]:
        roleset = self.view.roleset
        if not history.is_asked_for(roleset.spec):
            return []
        self.bindings = history.read(roleset)
        now = history.refreshed(self.bindings, roleset.spec, self.view.pods)
        if self.bindings is not None and now.to_annotation() == self.bindings.to_annotation():
            return []
        change = {"metadata": {"annotations": {orchestration.HISTORICAL_NODES: now.to_annotation()}}}
        if self.bindings is not None:
            self.bindings = now
        return [patch(ROLESETS, roleset, change)]

    def _remove_strays(self, roles: list[RoleInPass]) -> None:
        """What belongs to no role of the spec, or is of the kind that a role had before."""
        names = {r.role.name for r in roles}
        strays: list[Pod | PodSet] = [p for r in roles for p in r.orphans]
        strays += [p for p in self.view.pods if p.labels.get(orchestration.ROLE_LABEL) not in names]
        strays += [p for p in self.view.podsets if p.labels.get(orchestration.ROLE_LABEL) not in names]
        for stray in strays:
            if not stray.is_terminating:
                self.leave.steps.append(delete(PODS if isinstance(stray, Pod) else PODSETS, stray))

    # --- scaling

    def _scale(self, role: RoleInPass) -> bool:
        """Whether anything new was done: to wait for a drain is nothing new."""
        step = rollout.scale_of(role.copies)
        self.going[role.role.name] = frozenset(step.delete)
        steps_before = len(self.leave.steps)
        self._remove(role, step.delete, DrainReason.SCALE_IN)
        for slot in step.create:
            self.creates.append(self._create(role, slot, is_rollout=False))
        return bool(step.create) or len(self.leave.steps) > steps_before

    def _remove(self, role: RoleInPass, uids: tuple[str, ...], reason: DrainReason) -> None:
        chosen = set(uids)
        for podset in role.podsets if role.is_grouped else ():
            if podset.uid in chosen:
                self.leave.steps.append(delete(PODSETS, podset))
        for pod in () if role.is_grouped else role.pods:
            if pod.uid in chosen:
                self.leave.take(pod, role.role.drain_s, reason, self.now)

    def _create(self, role: RoleInPass, slot: int | None, *, is_rollout: bool) -> Create:
        roleset = self.view.roleset
        if role.is_grouped:
            assert slot is not None, "PodSets have slots"
            return Create(PODSETS, render.podset(roleset, role.role, role.hash, slot, gang_served=self.serves_groups))
        is_held = any(p.is_active and p.slot == slot for p in role.pods)
        nodes = history.nodes_for(
            self.bindings, roleset.spec, role.role, slot, is_rollout=is_rollout, slot_is_held=is_held
        )
        body = render.pod(roleset, role.role, role.hash, slot, nodes=nodes, gang_served=self.serves_groups)
        return Create(PODS, body)

    # --- updating

    def _roll(self, roles: list[RoleInPass]) -> None:
        known = {r.role.name: r for r in roles}
        copies = [r.copies for r in roles]
        match self.view.roleset.spec.update_strategy:
            case RoleOrder.SEQUENTIAL:
                turn = [(c, c.limits.wanted) for c in rollout.sequential(copies)]
            case RoleOrder.PARALLEL:
                turn = [(c, c.limits.wanted) for c in copies]
            case RoleOrder.INTERLEAVE:
                turn = rollout.interleaved(copies)
        for role_copies, target in turn:
            self._roll_role(known[role_copies.name], target)

    def _roll_role(self, role: RoleInPass, target: int) -> None:
        obstacle = ""
        if role.role.update_strategy.type is RoleUpdateType.IN_PLACE:
            obstacle = self._obstacle(role)
            if not obstacle:
                self._begin_in_place(role, target)
                return
        step = rollout.move_of(role.copies, target, self.going[role.role.name])
        if obstacle and not step.is_nothing:
            message = f"role {role.role.name}: {obstacle}; falling back to recreate"
            self.notes.append(tell(Reason.IN_PLACE_FALLBACK, message))
        self.replaced.update(step.delete)
        self._remove(role, step.delete, DrainReason.ROLLOUT)
        for slot in step.create:
            self.creates.append(self._create(role, slot, is_rollout=True))

    def _outdated(self, role: RoleInPass) -> list[Pod]:
        """Running Pods that neither have the present template nor are on their way to it."""
        waiting = {c.uid for c in role.copies.copies if c.is_active and not c.is_updated and not c.is_updating}
        return [p for p in role.pods if p.uid in waiting]

    def _rendered(self, role: RoleInPass, pod: Pod) -> dict[str, Any]:
        """``pod`` as it would be made of the present template."""
        slot = pod.slot if role.role.stateful else None
        return render.pod(self.view.roleset, role.role, role.hash, slot, gang_served=self.serves_groups)

    def _obstacle(self, role: RoleInPass) -> str:
        """Why the role cannot be updated in place; one Pod that cannot be speaks for all."""
        if role.is_grouped:
            return "its replicas are groups of Pods"
        if self._outdated(role) and not role.copies.limits.unavailable:
            return "maxUnavailable 0 lets no Pod be taken out of service"
        for pod in self._outdated(role):
            rendered = self._rendered(role, pod)
            found = likeness.difference(rendered, pod.body)
            if found:
                return f"Pod {pod.name}: {found}"
        return ""

    def _begin_in_place(self, role: RoleInPass, target: int) -> None:
        chosen = set(rollout.roll_in_place(role.copies.limits, role.copies.copies, target))
        for pod in self._outdated(role):
            if pod.uid in chosen:
                rendered = self._rendered(role, pod)
                gate, images, told = in_place.begin(pod, rendered, role.hash)
                self.gates += gate
                if not gate:  # out of service first
                    self.patches += images
                    self.notes.append(told)

    def _advance(self, role: RoleInPass) -> None:
        """What in-place updates under way need, and our readiness gate on Pods that have none under way."""
        for pod in role.pods:
            if not pod.is_active:
                continue
            if pod.labels.get(orchestration.HASH_LABEL) == role.hash:
                self.gates += in_place.open_gate(pod)
            if in_place.target_of(pod) == role.hash and role.role.update_strategy.type is RoleUpdateType.IN_PLACE:
                gate, patches, told = in_place.advance(pod, render.revision_labels(self.view.roleset, role.role.name))
                self.gates += gate
                if not gate:
                    self.patches += patches
                    self.notes += told

    def _adapt_podsets(self, role: RoleInPass) -> None:
        """What of a PodSet is no part of the Pods' template changes where it is."""
        for podset in role.podsets if role.is_grouped else ():
            change: dict[str, Any] = {}
            if podset.spec.pod_group_size != role.role.group_size:
                change["podGroupSize"] = role.role.group_size
            if podset.spec.drain_s != role.role.drain_s:
                change["drain"] = {"timeoutSeconds": role.role.drain_s}
            if change and not podset.is_terminating:
                self.patches.append(patch(PODSETS, podset, {"spec": change}))

    # --- the rest

    def _spare(self, roles: list[RoleInPass]) -> None:
        for role in roles:
            chosen = self.going.get(role.role.name, frozenset()) | self.replaced
            updated = frozenset(c.uid for c in role.copies.copies if c.is_updated)
            self.leave.spare(() if role.is_grouped else role.pods, frozenset(chosen), updated)

    def _warn_of_topology(self, roles: list[RoleInPass]) -> None:
        policy = self.view.roleset.spec.topology_policy
        if policy is None:
            return
        behind = sum(_lacks_topology(p, self.view) for r in roles for p in r.pods if p.is_active)
        if behind:
            message = f"{behind} Pods were made before the topology policy and keep what they have until replaced"
            self.notes.append(warn(Reason.TOPOLOGY_PENDING, message))


def _lacks_topology(pod: Pod, view: RoleSetView) -> bool:
    spec = {"affinity": (pod.body.get("spec") or {}).get("affinity")}
    wanted = dict(spec)
    render.add_topology(wanted, view.roleset.spec.topology_policy, pod.labels)
    return wanted != spec
