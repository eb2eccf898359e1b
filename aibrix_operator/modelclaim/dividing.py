"""Dividing a card, one safe step a pass: shrink, see it, record, grow.

A division is planned once and then carried through by later passes, each of which believes only what a reading or an
acknowledged status shows. Whatever is lost on the way, records and footprints never exceed the card.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from aibrix_operator.ledger import division as ledger_division
from aibrix_operator.ledger import figures
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.accounts import Account, Sitting, by_claim
from aibrix_operator.modelclaim.memory import Cause, Division, Stage
from aibrix_operator.runtime_api.wire import EnginePhase


@dataclass(frozen=True, slots=True)
class Progress:
    """What one pass does for a division. Exactly one of the mappings is filled, or none while it waits."""

    division: Division | None
    """None when it is over, well or badly."""
    writes: Mapping[str, int] = field(default_factory=dict)
    """Claim name → limit to send to the runtime now."""
    records: Mapping[str, int] = field(default_factory=dict)
    """Claim name → ``kvLimitBytes`` to record now, the newcomer's instance among them."""
    failure: str = ""
    """Why it failed; ``writes`` then takes the shrunk limits back."""

    @property
    def is_done(self) -> bool:
        return self.division is None and not self.failure


def plan(
    account: Account, cause: Cause, targets: Mapping[str, int], newcomer: str = "", newcomer_seat: Seat | None = None
) -> Division:
    """A division at its very start; nothing is sent yet."""
    sittings = by_claim(account)
    before = {c: sittings[c].limit_in_force if c in sittings else -1 for c in targets}
    return Division(cause, account.composition, targets, before, newcomer, newcomer_seat)


def begin(account: Account, division: Division) -> Progress:
    """Send what shrinks; with nothing to shrink go straight on to the records."""
    shrinks = {
        claim: division.targets[claim]
        for claim, sitting in by_claim(account).items()
        if claim in division.targets and sitting.limit_in_force > division.targets[claim]
    }
    if shrinks:
        return Progress(dataclasses.replace(division, shrunk=shrinks), writes=shrinks)
    return advance(account, dataclasses.replace(division, stage=Stage.RECORDING))


def advance(account: Account, division: Division) -> Progress:
    """The next safe step of a division, judged on a fresh reading and acknowledged records."""
    sittings = by_claim(account)
    if division.stage is Stage.SHRINKING:
        failure = _unconfirmed(division, sittings)
        if failure:
            return Progress(None, writes=_take_back(division, sittings), failure=failure)
        division = dataclasses.replace(division, stage=Stage.RECORDING)
    if division.stage is Stage.RECORDING:
        # A status write can be refused for long. Who restarted meanwhile is held to nothing any more.
        failure = _escaped(division, sittings)
        if failure:
            return Progress(None, writes=_take_back(division, sittings), failure=failure)
        records = _records_due(division, sittings)
        if records:
            return Progress(division, records=records)
        grows = {
            claim: division.targets[claim]
            for claim, sitting in sittings.items()
            if claim in division.targets and 0 <= sitting.limit_in_force < division.targets[claim]
        }
        if grows:
            return Progress(dataclasses.replace(division, stage=Stage.GROWING), writes=grows)
    return Progress(None)


def _unconfirmed(division: Division, sittings: Mapping[str, Sitting]) -> str:
    """Why a limit that was sent does not hold, by the reading; empty when all hold."""
    for claim, target in division.shrunk.items():
        sitting = sittings.get(claim)
        if sitting is None or sitting.engine is None:
            return f"{claim} is no longer on this card"
        model = sitting.claim.model
        if sitting.limit_in_force != target:
            return f"{model} did not take a KV limit of {figures.gib(target)}"
        if sitting.mapped_bytes > target:
            return f"{model} holds {figures.gib(sitting.mapped_bytes)}, past the {figures.gib(target)} it was given"
    return ""


def is_held(sitting: Sitting) -> bool:
    """Whether its engine's limit in force says what it may take now: what boots gets its limit later."""
    engine = sitting.engine
    return engine is not None and engine.alive and engine.phase is not EnginePhase.BOOTING


def _escaped(division: Division, sittings: Mapping[str, Sitting]) -> str:
    """Which engine has more than it is about to have recorded; empty for none."""
    for claim, target in division.targets.items():
        sitting = sittings.get(claim)
        if sitting is not None and is_held(sitting) and max(sitting.limit_in_force, sitting.mapped_bytes) > target:
            return f"{sitting.claim.model} is no longer held to {figures.gib(target)}"
    return ""


def _take_back(division: Division, sittings: Mapping[str, Sitting]) -> dict[str, int]:
    """Where each shrunk engine goes back to: what it had, as far as its record allows.

    One that was shrunk to more than its record, which was about to go up, gets nothing: a write that arrived late may
    have held it to the record meanwhile, and it would be grown past that.
    """
    back = {}
    for claim, written in division.shrunk.items():
        sitting = sittings.get(claim)
        if sitting is not None and sitting.engine is not None:
            record = sitting.instance.kv_limit_bytes
            limit = ledger_division.take_back_bytes(division.before[claim], record, written)
            if not record or limit <= record:
                back[claim] = limit
    return back


def _records_due(division: Division, sittings: Mapping[str, Sitting]) -> dict[str, int]:
    """Records still to be written: those that go down alone, then those that may go down, and only when all these are
    seen the rest.

    Judged by records, never by limits in force. A record of 0 (none yet) goes up. One may be higher than it is seen if
    the answer to a write was lost.
    """
    downs, unsure, ups = {}, {}, {}
    for claim, target in division.targets.items():
        sitting = sittings.get(claim)
        if sitting is None or not sitting.is_recorded:
            ups[claim] = target
        elif sitting.instance.kv_limit_bytes > target:
            downs[claim] = target
        elif sitting.recorded_bytes_at_most > target:
            unsure[claim] = target
        elif sitting.instance.kv_limit_bytes < target:
            ups[claim] = target
    return downs or unsure or ups
