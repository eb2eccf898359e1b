"""One Pod's card: its usable memory and the instances charged to it. Read by the division, placement and the audit.

All figures are bytes on the smallest GPU of the Pod, and an instance is charged once, whatever the number of GPUs.
Two accounts are kept side by side: *promised* (what everyone is entitled to) and *held* (what everyone has taken,
never less than entitled to). A seat is given only when both accounts have room for it.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field
from enum import StrEnum

BUSIEST_REQUESTS = 4
"""From this many requests on, an engine weighs no more: the card is shared, not auctioned."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What a claim declares for one GPU: its largest non-KV memory, and the KV without which it cannot serve."""

    footprint_bytes: int
    kv_floor_bytes: int

    @property
    def total_bytes(self) -> int:
        """The promise one instance needs on a card, and keeps as its wake reserve."""
        return self.footprint_bytes + self.kv_floor_bytes


class Activity(StrEnum):
    """What an instance does, as far as dividing KV is concerned."""

    STARTING = "starting"
    """Recorded, booting, restarting or waking: awake, and no request reaches it yet."""
    SERVING = "serving"
    ASLEEP = "asleep"


@dataclass(frozen=True, slots=True)
class Occupant:
    """One instance charged to one card. Instances that cost nothing (failed, engine gone) are no occupants."""

    claim: str
    """The claim's name: the key of plans and the order in which odd bytes are dealt."""
    seat: Seat
    kv_mapped_bytes: int = 0
    """KV pages used and preallocated; 0 without a segment, or when the engine has not been seen yet."""
    activity: Activity = Activity.STARTING
    requests: int | None = 0
    """Running plus waiting. None: the engine serves and its metrics cannot be read, so it is taken for the busiest."""
    lent_footprint_bytes: int | None = None
    """What a sleeper without wake reserve was measured to hold, its mapped KV included. None: the full seat is kept."""

    def __post_init__(self) -> None:
        """Refuse what no reading can mean; raises ValueError, a mistake of the caller."""
        if self.kv_mapped_bytes < 0:
            raise ValueError(f"{self.claim} maps {self.kv_mapped_bytes} bytes; an engine without a segment maps 0")
        if self.lent_footprint_bytes is None:
            return
        if self.activity is not Activity.ASLEEP:
            raise ValueError(f"{self.claim} is {self.activity}; only a sleeper can go without its wake reserve")
        if self.lent_footprint_bytes <= 0:
            raise ValueError(f"{self.claim} holds {self.lent_footprint_bytes} bytes asleep; unmeasured is None")

    @property
    def promised_bytes(self) -> int:
        """Its part of what the card can ever give away."""
        return self.seat.total_bytes if self.lent_footprint_bytes is None else self.lent_footprint_bytes

    @property
    def held_bytes(self) -> int:
        """Its part of what the card cannot give away now: KV that it maps beyond its floor counts too."""
        if self.lent_footprint_bytes is None:
            return self.seat.footprint_bytes + self.keep_bytes
        return self.lent_footprint_bytes

    @property
    def keep_bytes(self) -> int:
        """The lowest KV limit it may be given: never below what it maps, nor below its floor while that is reserved."""
        if self.lent_footprint_bytes is None:
            return max(self.seat.kv_floor_bytes, self.kv_mapped_bytes)
        return self.kv_mapped_bytes

    @property
    def weight(self) -> int:
        """Its share of the spare KV: 0 asleep, 1 without requests, 5 with four or more, or with unreadable metrics."""
        if self.activity is Activity.ASLEEP:
            return 0
        if self.activity is Activity.STARTING:
            return 1
        return 1 + (BUSIEST_REQUESTS if self.requests is None else min(self.requests, BUSIEST_REQUESTS))


@dataclass(frozen=True, slots=True)
class Card:
    """The account of one Pod's card. Its sums are taken once, because placement asks every card about every claim."""

    pod: str
    usable_bytes: int
    occupants: tuple[Occupant, ...] = ()
    """Sorted by claim name, in whatever order they were given: equal accounts are equal values."""
    reserved_bytes: int = 0
    """The seat held here for another claim that room is being made for."""
    promised_bytes: int = field(init=False, repr=False, compare=False)
    held_bytes: int = field(init=False, repr=False, compare=False)
    room_ever_bytes: int = field(init=False, repr=False, compare=False)
    """What can still be promised, with every engine back at its floor. Below zero when overdrawn."""
    room_now_bytes: int = field(init=False, repr=False, compare=False)
    """What can be used at once, without any engine giving KV back. Below zero when overdrawn."""

    def __post_init__(self) -> None:
        """Sort and sum. Raises ValueError when a claim is charged twice, for its name would mean two limits."""
        ordered = tuple(sorted(self.occupants, key=lambda o: o.claim))
        for one, next_one in itertools.pairwise(ordered):
            if one.claim == next_one.claim:
                raise ValueError(f"{one.claim} is charged twice on {self.pod}")
        object.__setattr__(self, "occupants", ordered)
        promised_bytes = sum(o.promised_bytes for o in ordered)
        held_bytes = sum(o.held_bytes for o in ordered)
        object.__setattr__(self, "promised_bytes", promised_bytes)
        object.__setattr__(self, "held_bytes", held_bytes)
        object.__setattr__(self, "room_ever_bytes", self.usable_bytes - promised_bytes - self.reserved_bytes)
        object.__setattr__(self, "room_now_bytes", self.usable_bytes - held_bytes - self.reserved_bytes)

    def fits(self, seat: Seat) -> bool:
        """Whether the seat can be promised and used now."""
        return min(self.room_ever_bytes, self.room_now_bytes) >= seat.total_bytes

    def could_ever_hold(self, seat: Seat) -> bool:
        """Whether the seat can be promised beside the present occupants, once they give back what they took."""
        return self.room_ever_bytes >= seat.total_bytes

    def holds_when_empty(self, seat: Seat) -> bool:
        """Whether the card is large enough at all."""
        return self.usable_bytes >= seat.total_bytes

    def with_occupant(self, occupant: Occupant) -> Card:
        """The account with this instance charged, in place of an earlier charge of the same claim."""
        others = tuple(o for o in self.occupants if o.claim != occupant.claim)
        return dataclasses.replace(self, occupants=(*others, occupant))

    def without_occupant(self, claim: str) -> Card:
        """The account with nothing charged for ``claim``; the same account when nothing was."""
        return dataclasses.replace(self, occupants=tuple(o for o in self.occupants if o.claim != claim))
