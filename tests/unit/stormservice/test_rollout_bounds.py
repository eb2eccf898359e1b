"""The planners' two theorems and their ends, over generated roles and schedules."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from planned_world import RoleWorld, random_world

from aibrix_operator.stormservice import rollout
from aibrix_operator.stormservice.rollout import Bounds, Copy, RoleCopies, Step

SEEDS = st.integers(0, 2**32)


@settings(max_examples=600, deadline=None)
@given(SEEDS)
def test_no_step_of_a_role_leaves_its_bounds_whatever_happens_between_steps(seed):
    world = random_world(seed)
    for _ in range(40):
        if world.chance.random() < 0.5:
            world.one_pass()
        elif world.chance.random() < 0.05:
            world.template += 1
        elif world.chance.random() < 0.05:
            wanted = world.chance.randrange(6)
            world.limits = rollout.bounds(wanted, world.chance.randrange(3), world.chance.randrange(3))
        else:
            world.mishap()


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_role_settles_once_mishaps_end(seed):
    world = random_world(seed)
    for _ in range(15):
        world.one_pass() if world.chance.random() < 0.5 else world.mishap()
    assert world.settle(), world


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_bad_template_followed_by_a_fix_finishes(seed):
    world = random_world(seed)
    world.settle()
    world.template += 1
    world.bad.add(world.template)
    for _ in range(world.chance.randrange(12)):
        world.one_pass()
        world.heal()
    world.template += 1
    assert world.settle(), world


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_bad_template_is_stopped_at_the_floor(seed):
    world = random_world(seed)
    world.settle()
    world.template += 1
    world.bad.add(world.template)
    for _ in range(30):
        world.one_pass()
        world.heal()
        assert world.serving(world.seen()) >= world.limits.floor


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_settled_role_is_left_alone(seed):
    world = random_world(seed)
    assert world.settle()
    before = dict(world.copies)
    for _ in range(3):
        assert world.one_pass().is_nothing
    assert world.copies == before


# --- RoleSets


class RoleSetWorld(RoleWorld):
    """Copies without slots, planned as RoleSets of a StormService are."""

    def one_pass(self, roll=None) -> Step:
        seen = self.seen()
        shares = rollout.scale_copies(self.limits, seen, keeps_shares=False)
        if shares.is_nothing:
            shares = rollout.roll_copies(self.limits, seen)
        step = Step((None,) * shares.create_updated, shares.delete)
        self.check(RoleCopies("", self.limits, seen, False), step)
        self.carry_out(step)
        return step


def roleset_world(seed: int) -> RoleSetWorld:
    world = random_world(seed)
    made = RoleSetWorld(world.chance, world.limits, has_slots=False, template=world.template)
    for _ in range(world.chance.randrange(8)):
        made.template = world.chance.randrange(3)
        made.make(None, is_ready=world.chance.random() < 0.5, is_terminating=world.chance.random() < 0.2)
    return made


@settings(max_examples=600, deadline=None)
@given(SEEDS)
def test_no_step_of_a_stormservice_leaves_its_bounds(seed):
    world = roleset_world(seed)
    for _ in range(30):
        if world.chance.random() < 0.5:
            world.one_pass()
        elif world.chance.random() < 0.05:
            world.template += 1
        else:
            _roleset_mishap(world)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_stormservice_settles_also_after_a_bad_template(seed):
    world = roleset_world(seed)
    world.template += 1
    world.bad.add(world.template)
    for _ in range(world.chance.randrange(10)):
        world.one_pass()
        world.heal()
    world.template += 1
    assert world.settle(), world


def _roleset_mishap(world: RoleWorld) -> None:
    """A RoleSet never ends by itself."""
    before = dict(world.copies)
    world.mishap()
    if any(copy.has_ended for copy, _ in world.copies.values()):
        world.copies = before


@settings(max_examples=600, deadline=None)
@given(SEEDS)
def test_a_paused_update_scales_in_shares_and_to_the_wanted_number(seed):
    chance = random.Random(seed)
    copies = [
        Copy(f"u{n}", is_updated=chance.random() < 0.5, is_ready=chance.random() < 0.8)
        for n in range(1, 2 + chance.randrange(10))
    ]
    wanted = chance.randrange(12)
    step = rollout.scale_copies(Bounds(wanted, 0, 0), copies, keeps_shares=True)
    left = [c for c in copies if c.uid not in step.delete]
    assert len(left) + step.create_current + step.create_updated == wanted
    if all(c.is_ready for c in copies):
        old = sum(not c.is_updated for c in left) + step.create_current
        exact = sum(not c.is_updated for c in copies) * wanted / len(copies)
        assert abs(old - exact) <= 1


# --- roles beside each other


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_interleaved_roles_all_finish_and_none_runs_ahead(seed):
    chance = random.Random(seed)
    worlds = []
    for _ in range(1 + chance.randrange(3)):
        wanted = 1 + chance.randrange(5)
        limits = rollout.bounds(wanted, chance.randrange(3), chance.randrange(3))
        worlds.append(RoleWorld(chance, limits, has_slots=chance.random() < 0.5))
    for world in worlds:
        assert world.settle()
        world.template += 1
    if chance.random() < 0.5:  # a bad one comes first
        for world in worlds:
            world.bad.add(world.template)
        _interleave(worlds, 8)
        for world in worlds:
            world.template += 1
    _interleave(worlds, 200)
    assert all(world.role().is_settled for world in worlds), worlds


def _updated(world: RoleWorld) -> int:
    return sum(c.is_updated for c in rollout.active(world.seen()))


def _interleave(worlds: list[RoleWorld], passes: int) -> None:
    for _ in range(passes):
        now = {
            role.name: target for role, target in rollout.interleaved([w.role(str(n)) for n, w in enumerate(worlds)])
        }
        for n, world in enumerate(worlds):
            target = now.get(str(n))
            before = _updated(world)
            world.one_pass(
                lambda role, going, target=target: Step() if target is None else rollout.move_of(role, target, going)
            )
            filled = world.limits.wanted if target is None else target
            assert _updated(world) <= max(before, filled), (world, target)
        for world in worlds:
            if world.chance.random() < 0.7:
                world.heal()
