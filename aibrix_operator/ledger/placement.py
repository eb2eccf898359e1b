"""Which Pod takes a claim, and what to say when none does. Called once for each waiting claim of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Literal

from aibrix_operator.ledger import figures
from aibrix_operator.ledger.card import Card, Seat

NO_CANDIDATE = "no available candidate warm pod for model"

_ANY_SEAT_BYTES = 1 << 63
"""What a Pod without cards takes: more than any seat, since nothing is accounted there."""
_NO_SEAT_BYTES = -1
"""What a Pod with an obstacle takes: less than any seat."""


class ObstacleKind(StrEnum):
    """Why a Pod cannot take the claim for a reason other than room."""

    HOLE = "hole"
    """Something on its card cannot be valued."""
    TOPOLOGY = "topology"
    """It has another number of GPUs than the model runs on."""
    LEFT_ALONE = "left alone"
    """Its runtime did not answer in time recently, and is not called again yet."""
    UNDIVIDABLE = "undividable"
    """It has room, and a limit on its card could not be lowered."""


_UNKNOWN_KINDS = frozenset({ObstacleKind.HOLE, ObstacleKind.TOPOLOGY})
"""Obstacles behind which the room of a card is not known, or not of interest."""

_OBSTACLE_WORDS = {
    ObstacleKind.HOLE: "{pod} could not be judged: ",
    ObstacleKind.TOPOLOGY: "{pod} ",
    ObstacleKind.LEFT_ALONE: "{pod} cannot be asked to start {model} yet: ",
    ObstacleKind.UNDIVIDABLE: "{pod} has room, but its card could not be divided: ",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A typed reason with the words that follow the kind's own: an error text, or a hole of the account."""

    kind: ObstacleKind
    text: str

    @classmethod
    def topology(cls, reported_gpus: int, wanted_gpus: int) -> Obstacle:
        """The obstacle of a Pod whose runtime reports ``reported_gpus`` accelerators to a model that runs on others."""
        return cls(ObstacleKind.TOPOLOGY, f"reports {reported_gpus} GPU(s), and the model runs on {wanted_gpus}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One Pod as placement sees it. Its order is computed once, so keep a candidate while nothing of it changes."""

    pod: str
    card: Card | None
    """None without an obstacle: the Pod has no cards, and claims are placed there freely."""
    obstacle: Obstacle | None = None
    artifact_cached: bool = False
    state_known: bool = True
    memory_known: bool = True
    engines_awake: int = 0
    free_bytes: int = 0
    """Free memory of its largest GPU for a model on one GPU, of its smallest for a model on several."""
    kv_used_bytes: int = 0
    engines: int = 0
    instances: int = 0
    largest_seat_bytes: int = field(init=False, repr=False, compare=False)
    """The largest seat that it can take now; -1 behind an obstacle."""
    rank_key: tuple[bool | int | str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute what every placement asks of every Pod."""
        object.__setattr__(self, "largest_seat_bytes", _largest_seat_bytes(self))
        object.__setattr__(self, "rank_key", _rank_key(self))


def rank(candidate: Candidate) -> tuple[bool | int | str, ...]:
    """The key by which Pods that fit are ordered, best first. Total: no two Pods share a name."""
    return candidate.rank_key


def _rank_key(c: Candidate) -> tuple[bool | int | str, ...]:
    # 1. has the artifact cached   2. runtime state known   3. memory known   4. room known
    # 5. fewest engines awake      6. most room ever        7. most free GPU memory
    # 8. least KV used             9. fewest engines       10. fewest recorded instances   11. lowest Pod name
    return (
        not c.artifact_cached,
        not c.state_known,
        not c.memory_known,
        c.card is None,
        c.engines_awake,
        0 if c.card is None else -c.card.room_ever_bytes,
        -c.free_bytes,
        c.kv_used_bytes,
        c.engines,
        c.instances,
        c.pod,
    )


def _largest_seat_bytes(c: Candidate) -> int:
    if c.obstacle is not None:
        return _NO_SEAT_BYTES
    if c.card is None:
        return _ANY_SEAT_BYTES
    return min(c.card.room_ever_bytes, c.card.room_now_bytes)


@dataclass(frozen=True, slots=True)
class Placed:
    """The Pod that takes the claim."""

    pod: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No Pod takes the claim. Reason and message go into the ``Scheduled`` condition as they are."""

    reason: Literal["NoMatchingPods", "TooLargeForAnyCard"]
    message: str


def place(model: str, seat: Seat, candidates: Sequence[Candidate]) -> Placed | Refused:
    """Choose the Pod for ``model``, or say why none takes it. Pods that it is already on are left out by the caller.

    A Pod fits without an obstacle and with room for the seat both ever and now, or with no cards at all.
    """
    need_bytes = seat.total_bytes
    fitting = [c for c in candidates if c.largest_seat_bytes >= need_bytes]
    if fitting:
        return Placed(min(fitting, key=attrgetter("rank_key")).pod)
    if not candidates:
        return Refused("NoMatchingPods", NO_CANDIDATE)
    cards = [c.card for c in candidates if c.card is not None]
    if len(cards) == len(candidates) and not any(card.holds_when_empty(seat) for card in cards):
        largest = max(card.usable_bytes for card in cards)
        return Refused(
            "TooLargeForAnyCard",
            f"no candidate pod can hold this model, which needs {figures.gib(need_bytes)} on a card; "
            f"the best of them offers {figures.gib(largest)} on a card",
        )
    best = min(candidates, key=lambda c: _refusal_order(need_bytes, c))
    others = len(candidates) - 1
    return Refused(
        "NoMatchingPods",
        f"no warm pod can hold this model, which needs {figures.gib(need_bytes)} on a card: "
        + _refusal_text(model, need_bytes, best)
        + (f"; {others} other pod(s) were turned away as well" if others else ""),
    )


def _refusal_order(need_bytes: int, c: Candidate) -> tuple[bool, bool, int, str]:
    """The key by which Pods that do not fit are ordered, the refusal that helps its reader most first."""
    # 1. known before unknown   2. "could hold it later" before "never"   3. most room   4. lowest Pod name
    # A card that cannot be divided has all the room asked for, and so comes before one whose engines hold it.
    kind = None if c.obstacle is None else c.obstacle.kind
    if kind in _UNKNOWN_KINDS:
        return (True, kind is ObstacleKind.TOPOLOGY, 0, c.pod)
    if c.card is None:
        return (False, False, 0, c.pod)
    is_never = c.card.room_ever_bytes < need_bytes
    return (False, is_never, -(c.card.room_ever_bytes if is_never else c.card.room_now_bytes), c.pod)


def _refusal_text(model: str, need_bytes: int, c: Candidate) -> str:
    """Why a Pod that does not fit is turned away. A card without room says so, whatever else stands in the way."""
    obstacle, card = c.obstacle, c.card
    is_judged = obstacle is None or obstacle.kind not in _UNKNOWN_KINDS
    if is_judged and card is not None and card.room_ever_bytes < need_bytes:
        return (
            f"{c.pod} can offer at most {figures.gib(card.room_ever_bytes)}, "
            f"even with every engine on it at its floor ({_account(card, card.promised_bytes, 'promised to')})"
        )
    if is_judged and card is not None and card.room_now_bytes < need_bytes:
        return (
            f"{c.pod} has {figures.gib(card.room_now_bytes)} free, "
            f"with the rest held by the engines already on it ({_account(card, card.held_bytes, 'held by')})"
        )
    assert obstacle is not None, f"{c.pod} fits {model} and is asked why it does not"
    return _OBSTACLE_WORDS[obstacle.kind].format(pod=c.pod, model=model) + obstacle.text


def _account(card: Card, taken_bytes: int, how: str) -> str:
    """What stands in a refusal's brackets: the size of the card, and who has it."""
    account = (
        f"the card holds {figures.gib(card.usable_bytes)}, and {figures.gib(taken_bytes)} of it is {how} "
        f"{len(card.occupants)} instance(s)"
    )
    if card.reserved_bytes > 0:
        account += f"; {figures.gib(card.reserved_bytes)} more is held for another model that room is being made for"
    return account
