"""What is to happen in a schedule and when: a function of its seed and of the faults that may happen.

Times and kinds are drawn beforehand, and every action has a random generator of its own. So a schedule of which some
actions are left out plays the others at the same time and with the same choices.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from aibrix_operator.sim import crowd, happenings
from aibrix_operator.sim.happening import REGISTRY, Happening

PLAY_S = 1200.0
PAUSE_S = 8.0
SETUP = 0
"""Number of the setup's generator; actions count from 1."""
FEWEST_KINDS = 5
ELECTION_SHARE = 0.3
CROWDED_FROM = 1_000_000
"""Seeds from here on play in a pool that is too small for its claims (``sim.crowd``)."""
_SLEEPERS = frozenset(
    {"policy", "ask", "answer", "rest", "asleep-size", "request-taken-back", "slept-by-hand", "late-requests"}
)


class UnknownFaults(ValueError):
    """Names that are no fault's."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that happens."""

    number: int
    at_s: float
    happening: Happening


def fault_names() -> tuple[str, ...]:
    """The names of all faults."""
    assert happenings.__all__, "importing it fills the registry"
    return tuple(name for name, kind in REGISTRY.items() if kind.is_fault)


def chance_of(seed: int, what: int | str) -> random.Random:
    """The generator of one action, or of one purpose. Text seeds are hashed the same way in every process."""
    return random.Random(f"{seed}/{what}")


def operators_of(seed: int, faults: Collection[str] | None) -> int:
    """How many processes of the operator there are."""
    if faults is not None:
        return 2 if any(REGISTRY[name].needs_election for name in faults) else 1
    return 2 if chance_of(seed, "operators").random() < ELECTION_SHARE else 1


def kinds_of(seed: int, faults: Collection[str] | None) -> dict[str, int]:
    """Happening → weight. Without ``faults`` each seed has a choice of its own.

    What always happens hides what rarely does. Raises UnknownFaults.
    """
    known = fault_names()
    if unknown := sorted(set(faults or ()) - set(known)):
        raise UnknownFaults(f"no such fault: {', '.join(unknown)}; there are {', '.join(known)}")
    if is_crowded(seed):
        return _crowded_kinds_of(seed, faults)
    chance = chance_of(seed, "kinds")
    share = chance.choice([0.3, 0.6, 1.0])
    chosen = {name for name in known if chance.random() < share}
    chosen |= set(chance.sample(known, FEWEST_KINDS))
    sleepers = chance.choice([0, 1, 3])
    if operators_of(seed, faults) == 1:
        chosen -= {name for name in known if REGISTRY[name].needs_election}
    if faults is not None:
        chosen = set(faults)
    return {
        name: kind.weight * (sleepers if name in _SLEEPERS else 1)
        for name, kind in REGISTRY.items()
        if not kind.is_fault or name in chosen
    }


def is_crowded(seed: int) -> bool:
    """Whether the schedule is of the kind in which room is always short."""
    return seed >= CROWDED_FROM


def _crowded_kinds_of(seed: int, faults: Collection[str] | None) -> dict[str, int]:
    chance = chance_of(seed, "kinds")
    weights = chance.choice(crowd.FLAVOURS)
    can_happen = [n for n in fault_names() if operators_of(seed, faults) > 1 or not REGISTRY[n].needs_election]
    chosen = {chance.choice(crowd.CALL_FAULTS), *chance.sample(can_happen, crowd.OTHER_FAULTS)}
    if faults is not None:
        chosen = set(faults)
    return weights | {name: REGISTRY[name].weight for name in fault_names() if name in chosen}


def plan(seed: int, faults: Collection[str] | None = None, seconds: float = PLAY_S) -> tuple[Action, ...]:
    """The actions of one schedule, in the order of their times. Raises UnknownFaults."""
    weights = {name: weight for name, weight in kinds_of(seed, faults).items() if weight}
    chance, at_s = chance_of(seed, "plan"), 0.0
    actions: list[Action] = []
    while (at_s := at_s + chance.expovariate(1 / PAUSE_S)) < seconds:
        (name,) = chance.choices(list(weights), list(weights.values()))
        actions.append(Action(len(actions) + 1, at_s, REGISTRY[name]))
    return tuple(actions)
