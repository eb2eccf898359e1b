"""The planners: which copies to make and to delete next, from what is seen of them. Arithmetic and nothing else.

One pass takes one step that is safe by itself; a later pass, which sees its effect, takes the next. What holds for
every step, whatever was seen:

- copies (those on their way out included) are never brought above ``ceiling`` = wanted + surge;
- no ready copy is taken away while that would leave fewer ready ones than ``floor`` = wanted - unavailable, except
  copies of slots that are no longer wanted, and the older of two copies of one slot.

A copy is a RoleSet of a StormService, or one role's Pod or PodSet in a RoleSet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aibrix_operator.api import orchestration


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many copies there are to be, and how far an update may stray from that."""

    wanted: int
    surge: int
    unavailable: int

    @property
    def ceiling(self) -> int:
        """The most copies that a step may lead to."""
        return self.wanted + self.surge

    @property
    def floor(self) -> int:
        """The fewest ready copies that a step may leave."""
        return self.wanted - self.unavailable


def bounds(wanted: int, max_surge: int | str | None, max_unavailable: int | str | None) -> Bounds:
    """Surge rounds up, unavailable down and to ``wanted`` at most. Both 0 would never move: then 1 is unavailable."""
    if wanted == 0:
        return Bounds(0, 0, 0)
    surge = orchestration.scaled(max_surge, wanted, up=True)
    unavailable = min(wanted, orchestration.scaled(max_unavailable, wanted, up=False))
    return Bounds(wanted, surge, unavailable if surge or unavailable else 1)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy as it was seen."""

    uid: str
    is_updated: bool
    """Of the present revision or template."""
    is_ready: bool = False
    is_terminating: bool = False
    has_ended: bool = False
    """A Pod that succeeded or failed: it is replaced."""
    slot: int | None = None
    """Index of a stateful role's copy; None for others, and where it cannot be read."""
    is_leaving: bool = False
    """Chosen for deletion by an earlier pass, and draining since: it is chosen first, or two would drain for one."""
    is_updating: bool = False
    """Being updated in place."""
    born: tuple[str, str] = ("", "")
    """Creation time and name: what comes later is newer."""

    @property
    def is_active(self) -> bool:
        """Neither ended nor on its way out."""
        return not (self.is_terminating or self.has_ended)


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now."""

    create: tuple[int | None, ...] = ()
    """One entry for each new copy: its slot, None where copies have none."""
    delete: tuple[str, ...] = ()
    """UIDs."""

    @property
    def is_nothing(self) -> bool:
        """Nothing is to be done."""
        return not (self.create or self.delete)


NOTHING = Step()


@dataclass(frozen=True, slots=True)
class Shares:
    """New RoleSets by revision, and those to be deleted."""

    create_current: int = 0
    create_updated: int = 0
    delete: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Nothing is to be done."""
        return not (self.create_current or self.create_updated or self.delete)


def active(copies: Iterable[Copy]) -> list[Copy]:
    """Those that are neither ended nor on their way out."""
    return [c for c in copies if c.is_active]


def ready_count(copies: Iterable[Copy]) -> int:
    """How many of them are active and ready."""
    return sum(c.is_active and c.is_ready for c in copies)


# --- RoleSets of a StormService


def scale_copies(limits: Bounds, copies: Sequence[Copy], *, keeps_shares: bool) -> Shares:
    """Towards the wanted number. ``keeps_shares``: a paused update of two revisions keeps their proportion."""
    present = active(copies)
    missing = limits.wanted - len(present)
    if missing > 0:
        room = max(0, min(missing, limits.ceiling - len(copies)))
        if not keeps_shares:
            return Shares(create_updated=room)
        current = sum(not c.is_updated for c in present)
        wanted_current = _share(current, len(present), limits.wanted)
        new_current = min(room, max(0, wanted_current - current))
        return Shares(create_current=new_current, create_updated=room - new_current)
    if missing == 0:
        return Shares()
    if keeps_shares:
        return Shares(delete=tuple(c.uid for c in _shrink_in_shares(limits, present, -missing)))
    order = sorted(present, key=lambda c: (c.is_updated, c.is_ready))
    return Shares(delete=tuple(c.uid for c in _down_to_floor(order, -missing, ready_count(present), limits.floor)))


def roll_copies(limits: Bounds, copies: Sequence[Copy]) -> Shares:
    """One step of a rolling update of RoleSets, after scaling had nothing to do."""
    updated = [c for c in copies if c.is_updated]
    if len(updated) == limits.wanted:
        return Shares()
    outdated = sorted((c for c in active(copies) if not c.is_updated), key=lambda c: c.is_ready)
    delete = _down_to_floor(outdated, len(outdated), ready_count(copies), limits.floor)
    create = max(0, min(limits.ceiling - len(copies), limits.wanted - len(active(updated))))
    return Shares(create_updated=create, delete=tuple(c.uid for c in delete))


def _share(part: int, whole: int, of: int) -> int:
    """``of`` times ``part`` / ``whole``, halves rounded up; 0 of nothing."""
    return (2 * part * of + whole) // (2 * whole) if whole else 0


def _shrink_in_shares(limits: Bounds, present: Sequence[Copy], surplus: int) -> list[Copy]:
    """Not-ready ones first; if those do not do, ready ones of both revisions in proportion."""
    idle = [c for c in sorted(present, key=lambda c: c.is_updated) if not c.is_ready]
    if len(idle) >= surplus:
        return idle[:surplus]
    ready = [c for c in present if c.is_ready]
    current = [c for c in ready if not c.is_updated]
    updated = [c for c in ready if c.is_updated]
    kept_current = min(len(current), _share(len(current), len(ready), limits.wanted))
    kept_updated = min(len(updated), limits.wanted - kept_current)
    return [*idle, *current[: len(current) - kept_current], *updated[: len(updated) - kept_updated]]


def _down_to_floor(order: Sequence[Copy], count: int, ready: int, floor: int) -> list[Copy]:
    """The first ``count`` of ``order``, up to the first ready one (stop, not skip) that would leave less than
    ``floor`` ready ones."""
    chosen: list[Copy] = []
    for copy in order[:count]:
        if copy.is_ready:
            if ready <= floor:
                break
            ready -= 1
        chosen.append(copy)
    return chosen


# --- copies of a role without slots


def scale_pool(limits: Bounds, copies: Sequence[Copy]) -> Step:
    """Ended copies go in any case; then towards the wanted number.

    Of too many go, newest first: outdated and not ready, outdated, not ready, ready ones.
    """
    ended = [c.uid for c in copies if c.has_ended and not c.is_terminating]
    present = active(copies)
    terminating = sum(c.is_terminating for c in copies)
    missing = limits.wanted - len(present)
    if missing >= 0:
        room = max(0, min(missing, limits.ceiling - len(present) - terminating))
        return Step(create=(None,) * room, delete=tuple(ended))
    newest_first = sorted(present, key=lambda c: c.born, reverse=True)
    order = sorted(newest_first, key=lambda c: (not c.is_leaving, c.is_updated, c.is_ready))
    surplus = _down_to_floor(order, -missing, ready_count(present), limits.floor)
    return Step(delete=(*ended, *(c.uid for c in surplus)))


def roll_pool(limits: Bounds, copies: Sequence[Copy], target: int, going: frozenset[str]) -> Step:
    """Replace outdated copies, until ``target`` are updated. ``going``: what scaling is draining already."""
    present = active(copies)
    staying = [c for c in present if c.uid not in going]
    updated = sum(c.is_updated for c in staying)
    terminating = sum(c.is_terminating for c in copies)
    # Those that are not ready cost nothing; of the others first those that drain already.
    outdated = sorted((c for c in staying if not c.is_updated), key=lambda c: (c.is_ready, not c.is_leaving, c.born))
    allowed = max(0, len(outdated) - (limits.wanted - target))
    delete = _down_to_floor(outdated, allowed, ready_count(staying), limits.floor)
    create = max(0, min(limits.ceiling - len(present) - terminating, target - updated))
    return Step(create=(None,) * create, delete=tuple(c.uid for c in delete))


# --- copies of a role with slots


def slots_of(copies: Iterable[Copy], wanted: int) -> dict[int, list[Copy]]:
    """Slot → its active copies, for every wanted slot."""
    slots: dict[int, list[Copy]] = {slot: [] for slot in range(wanted)}
    for copy in active(copies):
        if copy.slot is not None and copy.slot in slots:
            slots[copy.slot].append(copy)
    return slots


def scale_slots(limits: Bounds, copies: Sequence[Copy]) -> Step:
    """Every wanted slot filled once. Ended copies, those without a slot and those of unwanted slots go at once."""
    slots = slots_of(copies, limits.wanted)
    kept = {c.uid for held in slots.values() for c in keep_of_slot(held)}
    delete = tuple(c.uid for c in copies if not c.is_terminating and c.uid not in kept)
    occupied = sum(c.is_active or c.is_terminating for c in copies)
    # The name of a copy that is still going is taken: its slot waits, and takes no room from others meanwhile.
    taken = {c.slot for c in copies if c.is_updated and not c.is_active}
    missing = [slot for slot, held in slots.items() if not held and slot not in taken]
    room = max(0, limits.ceiling - occupied)
    return Step(create=tuple(missing[:room]), delete=delete)


def keep_of_slot(held: Sequence[Copy]) -> list[Copy]:
    """Which of a slot's active copies stay: a lone one; else one updated and ready; else at most one outdated and
    ready beside one updated that is to become ready. Of equals the one that is not draining, then the oldest."""
    if len(held) <= 1:
        return list(held)
    order = sorted(held, key=lambda c: (c.is_leaving, c.born))
    updated_ready = [c for c in order if c.is_updated and c.is_ready]
    if updated_ready:
        return updated_ready[:1]
    outdated_ready = [c for c in order if not c.is_updated and c.is_ready]
    updated_idle = [c for c in order if c.is_updated and not c.is_ready]
    return [*outdated_ready[:1], *updated_idle[:1]] or order[:1]


def roll_slots(limits: Bounds, copies: Sequence[Copy], target: int, going: frozenset[str]) -> Step:
    """Replace outdated copies slot by slot: by deletion within the floor, else beside them within the ceiling.

    Copies count as outdated until ``target`` slots have an updated one. ``going``: what scaling is draining already.
    """
    slots = {slot: [c for c in held if c.uid not in going] for slot, held in slots_of(copies, limits.wanted).items()}
    budget = sum(any(c.is_ready for c in held) for held in slots.values()) - limits.floor
    create_budget = limits.ceiling - len(copies)
    steps_left = target - sum(any(c.is_updated for c in held) for held in slots.values())
    present_in: dict[int | None, int] = {}
    for copy in copies:
        present_in[copy.slot] = present_in.get(copy.slot, 0) + 1
    lone = [
        (slot, held[0])
        for slot, held in slots.items()
        if len(held) == 1 and present_in[slot] == 1 and not held[0].is_updated
    ]
    create: list[int | None] = []
    delete: list[str] = []
    # Those that need no budget first, or that have it from an earlier pass; then by index.
    for slot, copy in sorted(lone, key=lambda pair: (pair[1].is_ready, not pair[1].is_leaving, pair[0])):
        if steps_left <= 0:
            break
        if not copy.is_ready:
            delete.append(copy.uid)
        elif budget > 0:
            budget -= 1
            delete.append(copy.uid)
        elif create_budget > 0:
            create_budget -= 1
            create.append(slot)
        else:
            continue
        steps_left -= 1
    return Step(tuple(create), tuple(delete))


# --- copies that are updated in place


def roll_in_place(limits: Bounds, copies: Sequence[Copy], target: int) -> tuple[str, ...]:
    """UIDs of the copies to begin with now: not-ready ones are free, ready ones within the floor.

    A ready copy that is being updated counts against it already.
    """
    present = active(copies)
    begun = sum(c.is_updating for c in present)
    budget = ready_count(present) - limits.floor - sum(c.is_updating and c.is_ready for c in present)
    steps_left = target - begun - sum(c.is_updated and not c.is_updating for c in present)
    order = sorted(
        (c for c in present if not c.is_updated and not c.is_updating),
        key=lambda c: (c.is_ready, -1 if c.slot is None else c.slot, c.born),
    )
    chosen: list[str] = []
    for copy in order[: max(0, steps_left)]:
        if copy.is_ready:
            if budget <= 0:
                break
            budget -= 1
        chosen.append(copy.uid)
    return tuple(chosen)


# --- roles beside each other


@dataclass(frozen=True, slots=True)
class RoleCopies:
    """One role of a RoleSet and its copies."""

    name: str
    limits: Bounds
    copies: tuple[Copy, ...]
    has_slots: bool
    order: int | None = None
    """Of a sequential update; None comes last."""

    @property
    def is_settled(self) -> bool:
        """All there, all ready, all updated, and nothing of another kind left."""
        if any(not (c.is_active and c.is_ready and c.is_updated) or c.is_updating for c in self.copies):
            return False
        if not self.has_slots:
            return len(self.copies) == self.limits.wanted
        return sorted(-1 if c.slot is None else c.slot for c in self.copies) == list(range(self.limits.wanted))


def sequential(roles: Sequence[RoleCopies]) -> list[RoleCopies]:
    """The roles that may be updated now: in their order, up to and with the first that is not settled."""
    order = sorted(roles, key=lambda r: (r.order is None, r.order or 0))
    chosen = []
    for role in order:
        chosen.append(role)
        if not role.is_settled:
            break
    return chosen


def interleaved(roles: Sequence[RoleCopies]) -> list[tuple[RoleCopies, int]]:
    """The roles that may be updated now, each with the number of updated copies it may have after this step.

    Roles advance in steps of surge + unavailable copies. The slowest sets the step, and who is ahead of it waits.
    """
    steps = [(role, _own_step(role)) for role in roles if not role.is_settled]
    now = min((step for _, step in steps), default=0)
    return [(role, min(now * _stride(role.limits), role.limits.wanted)) for role, step in steps if step == now]


def _stride(limits: Bounds) -> int:
    return max(1, limits.surge + limits.unavailable)


def _own_step(role: RoleCopies) -> int:
    """The step that a role is at, or that it may begin because the one before is complete.

    AIBrix waits for outdated copies that are not ready too, and so for ever where the old template was the bad one.
    """
    stride, present = _stride(role.limits), active(role.copies)
    updated = [c for c in present if c.is_updated or c.is_updating]
    done = sum(c.is_ready and not c.is_updating for c in updated)
    step = (done - 1) // stride + 1 if done else int(stride > 1)
    reached = step * stride
    is_complete = len(present) == len(role.copies) and done == len(updated) == reached
    outdated = len(present) - len(updated)
    return step + int(is_complete or len(updated) > reached or outdated < role.limits.wanted - reached)


def move_of(role: RoleCopies, target: int, going: frozenset[str] = frozenset()) -> Step:
    """One step of replacing the role's outdated copies."""
    roll: Callable[[Bounds, Sequence[Copy], int, frozenset[str]], Step] = roll_slots if role.has_slots else roll_pool
    return roll(role.limits, role.copies, target, going)


def scale_of(role: RoleCopies) -> Step:
    """One step of scaling the role."""
    return (scale_slots if role.has_slots else scale_pool)(role.limits, role.copies)
