"""What the controller remembers between passes. All of it may be lost (a restart): that only delays things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from aibrix_operator.api.modelclaim import Instance
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.publish import Scheduled

# What a card's limits depend on besides load: (claim UID, seat, asleep, lent footprint) of all that is charged to it.
Composition: TypeAlias = frozenset[tuple[str, Seat, bool, int | None]]


class Cause(StrEnum):
    """Why a card is being divided."""

    PLACEMENT = "placement"
    COMPOSITION = "composition"
    ROUND = "round"


class Stage(StrEnum):
    """How far a division has come. The next stage begins when a reading or a status shows that the last one worked."""

    SHRINKING = "shrinking"
    """Lower limits were sent; the next reading must confirm each."""
    RECORDING = "recording"
    """Lower limits hold; records go down, then up, then the newcomer's instance."""
    GROWING = "growing"
    """All is recorded and higher limits were sent; whatever comes of them, the division is over."""


@dataclass(frozen=True, slots=True)
class Division:
    """A division under way on one card. Its targets stay as planned until it ends or the composition changes."""

    cause: Cause
    composition: Composition
    """Of the card when it was planned, without the newcomer."""
    targets: Mapping[str, int]
    """Claim name → KV limit, the newcomer's among them."""
    before: Mapping[str, int]
    """Claim name → limit in force when it began."""
    newcomer: str = ""
    """Name of the claim that is being placed; empty for the other causes."""
    newcomer_seat: Seat | None = None
    """What that claim declared when it was planned."""
    stage: Stage = Stage.SHRINKING
    shrunk: Mapping[str, int] = field(default_factory=dict)
    """Claim name → lower limit that was sent."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A seat kept on a card for a claim that room is being made for."""

    claim_uid: str
    seat_bytes: int
    until_s: float


@dataclass(frozen=True, slots=True)
class CardMemory:
    """One Pod's card, kept by Pod UID; dropped with the Pod."""

    division: Division | None = None
    divided_for: Composition | None = None
    """What the card was last divided for; None after a restart, empty where what was dealt then is gone. Rebuilt by the
    first division or round."""
    next_round_s: float = 0.0
    round_reading: int = -1
    """Sequence of the reading that the last round was judged on."""
    short: frozenset[str] = frozenset()
    """Engines found short in the last round (``ledger.division.RoundVerdict.short``)."""
    failures: int = 0
    """Failed divisions in a row."""
    last_failure_s: float = 0.0
    undividable: str = ""
    """Why its limits could not be lowered, until the round after ``undividable_until_s``."""
    undividable_until_s: float = 0.0
    unasked: str = ""
    """Why its runtime could not be asked to start an engine, until the round after ``unasked_until_s``."""
    unasked_until_s: float = 0.0
    promised_bytes: int = 0
    """Promised to started instances at the last pass: the measure of room that came free."""
    was_judged: bool = False
    freed_pass: int = 0
    """Number of the last pass that saw room come free here, or this Pod join or turn ready for the first time."""
    joined_pass: int = 0
    """Number of the pass that first saw this Pod, or first saw it ready."""
    was_ready: bool = False
    hold: Hold | None = None
    orphans: Mapping[str, float] = field(default_factory=dict)
    """Claim UID of an engine without an instance here → when it may be asked to stop (again)."""


class WaitKind(StrEnum):
    """What a claim without a Pod waits for, which decides what ends its wait early."""

    ROOM = "room"
    LARGER_CARD = "larger card"
    START = "start"


@dataclass(frozen=True, slots=True)
class Wait:
    """A claim's wait before its next try."""

    kind: WaitKind
    tries: int
    until_s: float
    generation: int
    since_pass: int


@dataclass(frozen=True, slots=True)
class LimitWrite:
    """A record written to an engine before it is routed, still to be confirmed by a reading."""

    pod_uid: str
    limit_bytes: int
    from_bytes: int
    at_s: float
    after_reading: int
    """Sequence of the reading that it was decided on."""
    error: str = ""
    """What the runtime said when the write failed."""


@dataclass(frozen=True, slots=True)
class Activity:
    """When an engine was last seen busy, kept by Pod UID and ipc name. After a restart every engine looks busy now."""

    busy_s: float
    completions: int | None
    is_at_rest: bool = True
    """Whether the last look found nothing in it. Until the next one does too it counts as busy: readings that say the
    same for minutes make no pass, so its last request may just have ended."""


@dataclass(frozen=True, slots=True)
class GoingToSleep:
    """An engine on its way to sleep: off the route, looked at again, then put to sleep."""

    pod_uid: str
    operation_id: str
    idle_s: float
    """For how long it had been idle when it was chosen."""
    completions: int | None
    """Its completion counter then: one more since, and it stays awake."""
    waker: str = ""
    """Model that it makes room for; empty when it sleeps for being idle."""
    for_uid: str = ""
    """UID of the claim that it makes room for."""
    window_s: int = 0
    """The idle window of its pool."""
    unrouted_s: float | None = None
    """When its route was first seen gone."""
    settled_reading: int | None = None
    """Sequence of the reading when what gateways had sent had arrived: only a later one proves that it is idle."""
    sent_s: float | None = None


@dataclass(frozen=True, slots=True)
class WakeRequest:
    """A request to wake an engine, from when it was first seen until the engine serves."""

    pod_uid: str
    requested_at: str
    """The annotation's value: what tells one request from the next."""
    first_seen_s: float
    is_again: bool = False
    """One of the same date was served before it: dates are whole seconds."""
    is_granted: bool = False
    """Its seat is charged again, and the card is divided for it."""
    sent_s: float | None = None
    """When the runtime was last asked; it is asked again with the same operation id."""
    is_done: bool = False
    """The runtime has carried it out."""
    waits_for: str = ""
    """Why it waits for room; empty while it does not."""
    refusal: str = ""
    """What the runtime said when it refused to wake the engine."""


@dataclass(frozen=True, slots=True)
class ClaimMemory:
    """One claim, kept by its UID; dropped with the claim."""

    wait: Wait | None = None
    turn_until_s: float | None = None
    """Until then others are kept off the Pod that it would get, while it is written to; None before that began."""
    silent_until_s: float | None = None
    """Until then its first status may wait for the Pods that could take it to be read."""
    refusal: Scheduled | None = None
    """What the last try to place it came to, published until it is placed."""
    started_on: frozenset[str] = frozenset()
    """UIDs of Pods whose runtime did not refuse the start."""
    refused_on: Mapping[str, str] = field(default_factory=dict)
    """Pod UID → why its runtime refused the start; the record is to be taken back."""
    passed_over: frozenset[str] = frozenset()
    """UIDs of Pods whose runtime could not be asked: the record is to be taken back and another Pod tried."""
    start_again_s: float = 0.0
    """Before this no start is repeated whose outcome is unknown."""
    limit_write: LimitWrite | None = None
    not_held_bytes: int | None = None
    """The limit in force when its engine was found above its record and taken off the route; -1 when unreadable."""
    limit_failed_s: float | None = None
    """When KVLimitFailed was last raised for its engine."""
    going_to_sleep: GoingToSleep | None = None
    wake_request: WakeRequest | None = None
    served_wake: str = ""
    """The last request (its annotation's value) that its engine has served. The runtime knows that operation."""
    refused_wake: str = ""
    """The request (its annotation's value) that has ended; it is no new one while the annotation is still there."""
    moved_from: tuple[Instance, ...] = ()
    """The failed instances that its new one replaced, put back if that cannot be started."""
    asleep_bytes: int | None = None
    """What its engine held the last time it was seen asleep."""
    lent_on: str = ""
    """UID of the Pod where its seat was given away as it slept, until it serves again. Rebuilt from a record of 0."""
    put_back_s: float = float("-inf")
    """When its engine was last asked to sleep again since it came back awake without a seat."""
    told_footprint_unknown: bool = False
    """SleepingFootprintUnknown was raised for this sleep."""
    deleting_since_s: float | None = None
    """When its deletion was first seen."""
    drain_since_s: float | None = None
    """When its route was first seen gone, for a claim being deleted."""
    asked_to_stop: frozenset[str] = frozenset()
    """UIDs of Pods whose runtime was asked to stop its engine."""
    written_s: float = float("-inf")
    """When its status was last written: counters alone are published at most every ten seconds."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All of one namespace."""

    passes: int = 0
    cards: Mapping[str, CardMemory] = field(default_factory=dict)
    """By Pod UID."""
    claims: Mapping[str, ClaimMemory] = field(default_factory=dict)
    """By claim UID."""
    activities: Mapping[str, Activity] = field(default_factory=dict)
    """By Pod UID and ipc name (``activity.key_of``)."""
    policy_errors: Mapping[str, str] = field(default_factory=dict)
    """Deployment UID → the annotation and error class that were complained about."""
    policy_due_s: Mapping[str, float] = field(default_factory=dict)
    """Pod UID → when its pool's policy is applied to it next."""
