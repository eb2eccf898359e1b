"""Copies that come up, fail, hang and go at random, driven by the planners alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from aibrix_operator.stormservice import rollout
from aibrix_operator.stormservice.rollout import Bounds, Copy, RoleCopies, Step


@dataclass
class RoleWorld:
    """One role. A copy's template is a number; those in ``bad`` never become ready."""

    chance: random.Random
    limits: Bounds
    has_slots: bool
    template: int = 0
    bad: set[int] = field(default_factory=set)
    copies: dict[str, tuple[Copy, int]] = field(default_factory=dict)
    """UID → the copy and its template."""
    drains: bool = False
    numbers: itertools.count = field(default_factory=lambda: itertools.count(1))

    def seen(self) -> tuple[Copy, ...]:
        """The copies as the planners see them: in no particular order."""
        seen = [replace(copy, is_updated=made_of == self.template) for copy, made_of in self.copies.values()]
        self.chance.shuffle(seen)
        return tuple(seen)

    def role(self, name: str = "role") -> RoleCopies:
        return RoleCopies(name, self.limits, self.seen(), self.has_slots)

    def make(self, slot: int | None, **state: bool) -> None:
        """A new copy of the present template."""
        number = next(self.numbers)
        copy = Copy(f"u{number}", True, slot=slot, born=(f"{number:06}", ""), **state)
        self.copies[copy.uid] = copy, self.template

    def change(self, uid: str, **state: bool) -> None:
        copy, made_of = self.copies[uid]
        self.copies[uid] = replace(copy, **state), made_of

    def carry_out(self, step: Step) -> None:
        """Create and delete; where the role drains, a deletion is a mark first, and carried out some later time."""
        for slot in step.create:
            self.make(slot)
        for uid in step.delete:
            copy, _ = self.copies[uid]
            if self.drains and copy.is_active and not copy.is_leaving:
                self.change(uid, is_leaving=True)
            elif not (self.drains and copy.is_active and self.chance.random() < 0.5):
                self.change(uid, is_terminating=True)

    def one_pass(self, roll: Callable[[RoleCopies, frozenset[str]], Step] | None = None) -> Step:
        """Scaling, and if it had nothing new to do, a step of the update. Returns what was done."""
        role = self.role()
        step = rollout.scale_of(role)
        going = frozenset(step.delete)
        self.check(role, step)
        is_waiting_only = not step.create and all(self.copies[uid][0].is_leaving for uid in step.delete)
        self.carry_out(step)
        if step.is_nothing or is_waiting_only:
            role = self.role()
            roll = roll or (lambda role, going: rollout.move_of(role, role.limits.wanted, going))
            more = roll(role, going)
            self.check(role, more)
            self.carry_out(more)
            return Step(step.create + more.create, step.delete + more.delete)
        return step

    def check(self, role: RoleCopies, step: Step) -> None:
        """The two theorems, of one step."""
        standing = [c for c in role.copies if not (c.has_ended and not c.is_terminating)]
        if step.create:
            assert len(standing) + len(step.create) <= self.limits.ceiling, (role, step)
        before, after = self.serving(role.copies), self.serving(c for c in role.copies if c.uid not in step.delete)
        assert after >= min(before, self.limits.floor), (role, step)
        assert len(set(step.delete)) == len(step.delete), step
        if self.has_slots:
            assert len(set(step.create)) == len(step.create), step
            assert all(slot is not None and 0 <= slot < self.limits.wanted for slot in step.create), step

    def serving(self, copies) -> int:
        """Ready copies; with slots, wanted slots that have one."""
        ready = [c for c in copies if c.is_active and c.is_ready]
        if not self.has_slots:
            return len(ready)
        return len({c.slot for c in ready if c.slot is not None and c.slot < self.limits.wanted})

    # --- what happens by itself

    def mishap(self) -> None:
        """Something at random to a random copy."""
        if not self.copies:
            return
        uid = self.chance.choice(sorted(self.copies))
        copy, made_of = self.copies[uid]
        kind = self.chance.randrange(6)
        if kind <= 1 and copy.is_active and made_of not in self.bad:
            self.change(uid, is_ready=True)
        elif kind == 2:
            self.change(uid, is_ready=False)
        elif kind == 3:
            self.change(uid, has_ended=True, is_ready=False)
        elif kind == 4:
            self.change(uid, is_terminating=True)
        elif copy.is_terminating:
            del self.copies[uid]

    def heal(self) -> None:
        """What is going is gone, and what can become ready is."""
        for uid, (copy, made_of) in list(self.copies.items()):
            if copy.is_terminating:
                del self.copies[uid]
            elif not copy.has_ended:
                self.change(uid, is_ready=made_of not in self.bad)

    def settle(self, roll: Callable[[RoleCopies, frozenset[str]], Step] | None = None, passes: int = 0) -> bool:
        """Whether it comes to rest without further mishaps."""
        for _ in range(passes or 12 * (self.limits.ceiling + len(self.copies) + 3)):
            if self.one_pass(roll).is_nothing and self.role().is_settled:
                return True
            self.heal()
        return False


def random_world(seed: int) -> RoleWorld:
    """Some role in some state, also ones that we would never bring about."""
    chance = random.Random(seed)
    wanted = chance.randrange(6)
    unavailable = chance.randrange(wanted + 1)
    limits = rollout.bounds(wanted, chance.randrange(4), unavailable)
    world = RoleWorld(chance, limits, has_slots=chance.random() < 0.5, drains=chance.random() < 0.5)
    for template in range(3):
        world.template = template
        for _ in range(chance.randrange(4)):
            slot = chance.choice([None, *range(6)]) if world.has_slots else None
            world.make(slot, is_ready=chance.random() < 0.6, is_terminating=chance.random() < 0.2)
    return world
