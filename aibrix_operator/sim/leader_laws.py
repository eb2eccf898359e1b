"""One leader at a time: nobody sends what it may not, and no runtime carries out what an earlier leader sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aibrix_operator.api.term import Term
from aibrix_operator.sim.sender import SENDER, Sender
from aibrix_operator.sim.store import now_s

TAKEOVER_S = 5.0
"""After a leader's end another leads within this."""
LOOK_S = 0.1


@dataclass(slots=True)
class LeaderLaws:
    """Asked whenever something is sent or carried out. Without an election there is nothing to check."""

    operators: Callable[[], Sequence[Sender]]
    broken: list[str] = field(default_factory=list)
    takeovers_s: list[float] = field(default_factory=list)
    """After each leader that was killed: until another led."""
    highest: Term | None = None
    """The latest term in which anything was sent."""
    carried_out: dict[int, Term] = field(default_factory=dict)
    """Runtime (its id) → the latest term whose call it carried out."""

    def sent(self) -> None:
        """A process of the operator sends something that changes an object or a runtime."""
        sender = SENDER.get()
        if sender is None or not sender.stands_for_election:
            return
        leaders = [o.name for o in self.operators() if o.is_leader]
        if leaders != [sender.name]:
            self._break(f"{sender.name} sends while {' and '.join(leaders) or 'nobody'} leads")
        term = sender.term
        if term is None:
            return
        if self.highest is not None and term < self.highest:
            self._break(f"{sender.name} sends in term {term}, and term {self.highest} has sent before")
        else:
            self.highest = term

    def done(self, runtime: object, term: Term | None) -> None:
        """A runtime carries out a call that was sent in that term."""
        if term is None:
            return
        before = self.carried_out.get(id(runtime))
        if before is not None and term < before:
            self._break(f"a runtime does what was sent in term {term}, after a call of term {before}")
        self.carried_out[id(runtime)] = term

    async def must_take_over(self, is_free: Callable[[], bool]) -> None:
        """The leader has just ended: another leads in time, unless it ceases to be free to do so."""
        ended_s = now_s()
        while is_free() and now_s() - ended_s <= TAKEOVER_S:
            if any(o.is_leader for o in self.operators()):
                self.takeovers_s.append(round(now_s() - ended_s, 3))
                return
            await asyncio.sleep(LOOK_S)
        if is_free():
            self._break(f"nobody leads {TAKEOVER_S:g} s after the leader's end")

    def _break(self, sentence: str) -> None:
        self.broken.append(f"at {now_s():.3f} s: one leader: {sentence}")
