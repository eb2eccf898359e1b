"""Placing, mapping, sleeping, waking and leaving in any order: no card is ever promised twice."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st
from ledger_builders import seats

from aibrix_operator.ledger import audit
from aibrix_operator.ledger.card import Activity, Card, Occupant
from aibrix_operator.ledger.division import divide
from aibrix_operator.ledger.placement import Candidate, Placed, place

CLAIMS = [f"claim-{letter}" for letter in "abcdefgh"]


@dataclass
class Fleet:
    """Three cards with the limits of their last division. Every act asserts the laws on the card that it touched."""

    cards: dict[str, Card] = field(default_factory=lambda: {f"pod-{n}": Card(f"pod-{n}", 900 + n) for n in range(3)})
    limits: dict[str, int] = field(default_factory=dict)

    def home(self, claim):
        return next((c for c in self.cards.values() if any(o.claim == claim for o in c.occupants)), None)

    def occupant(self, claim):
        return next(o for o in self.home(claim).occupants if o.claim == claim)

    def settle(self, card, *, divided):
        if divided:
            self.limits |= divide(card)
        self.cards[card.pod] = card
        assert audit.violations(card, self.limits) == []

    def arrive(self, claim, seat):
        chosen = place(claim, seat, [Candidate(pod, card) for pod, card in self.cards.items()])
        if isinstance(chosen, Placed):
            self.settle(self.cards[chosen.pod].with_occupant(Occupant(claim, seat)), divided=True)
        else:
            assert not any(card.fits(seat) for card in self.cards.values())

    def leave(self, claim):
        card = self.home(claim).without_occupant(claim)
        del self.limits[claim]
        self.settle(card, divided=False)

    def serve(self, claim, requests, percent):
        """It serves, and maps as much of its limit as it likes."""
        mapped = self.limits[claim] * percent // 100
        card, seat = self.home(claim), self.occupant(claim).seat
        self.settle(card.with_occupant(Occupant(claim, seat, mapped, Activity.SERVING, requests)), divided=False)

    def sleep(self, claim, lent):
        card, seat = self.home(claim), self.occupant(claim).seat
        lent_bytes = min(lent, seat.footprint_bytes) if lent else None
        self.settle(card.with_occupant(Occupant(claim, seat, 0, Activity.ASLEEP, 0, lent_bytes)), divided=False)

    def wake(self, claim):
        """A sleeper that kept its reserve always wakes; one that lent it waits for room."""
        card, sleeper = self.home(claim), self.occupant(claim)
        woken = card.with_occupant(replace(sleeper, activity=Activity.STARTING, lent_footprint_bytes=None))
        if woken.room_now_bytes >= 0:
            self.settle(woken, divided=True)
        else:
            assert sleeper.lent_footprint_bytes is not None


@given(st.data())
def test_no_sequence_of_acts_breaks_a_law(data):
    fleet = Fleet()
    for _ in range(data.draw(st.integers(1, 25))):
        claim = data.draw(st.sampled_from(CLAIMS))
        if fleet.home(claim) is None:
            fleet.arrive(claim, data.draw(seats()))
            continue
        is_asleep = fleet.occupant(claim).activity is Activity.ASLEEP
        acts = ["leave", "divide", "wake"] if is_asleep else ["leave", "divide", "serve", "serve", "sleep"]
        match data.draw(st.sampled_from(acts)):
            case "leave":
                fleet.leave(claim)
            case "divide":
                fleet.settle(fleet.home(claim), divided=True)
            case "wake":
                fleet.wake(claim)
            case "serve":
                fleet.serve(claim, data.draw(st.none() | st.integers(0, 6)), data.draw(st.integers(0, 100)))
            case "sleep":
                fleet.sleep(claim, data.draw(st.none() | st.integers(1, 80)))
