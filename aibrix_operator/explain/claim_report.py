"""Why a claim is where it is: everything that ``explain claim`` prints, as one value. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aibrix_operator.api.conditions import Condition, bounded, find_condition
from aibrix_operator.api.modelclaim import ConditionType, Reason
from aibrix_operator.explain import judging, making_way, views
from aibrix_operator.explain.making_way import Suggestion
from aibrix_operator.explain.views import CardView
from aibrix_operator.ledger import figures
from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.placement import Placed, Refused
from aibrix_operator.modelclaim.accounts import Account
from aibrix_operator.modelclaim.draft import sitting_of
from aibrix_operator.modelclaim.snapshot import Claim, Fleet


class Outcome(StrEnum):
    """What the report comes to."""

    PLACED = "placed"
    """It has an instance."""
    FITS = "fits"
    """It waits, and a Pod can take it now: its next try places it."""
    WAITS = "waits"
    """It waits, and no Pod can take it now."""
    UNKNOWN = "unknown"
    """It waits, and the runtimes could not be asked from here: only its conditions say why."""
    INVALID = "invalid"
    """What it declares cannot be placed anywhere."""
    LEAVES = "leaves"
    """It is being deleted."""


class Fit(StrEnum):
    """Whether one Pod can take the claim now."""

    YES = "yes"
    LATER = "later"
    """Once engines on it give KV back."""
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One Pod that the claim may go to by label, state and GPU count."""

    card: CardView
    fit: Fit
    why_not: str
    """What it lacks, or what stands in the way; empty when it fits."""


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """All that is to be said of one claim."""

    claim: Claim
    outcome: Outcome
    where: str
    """The Pod that it is on, or that would take it; empty for the other outcomes."""
    reason: str
    """The reason of a refusal as its condition has it; empty without one."""
    message: str
    """Why not, in the words of the condition."""
    is_from_condition: bool
    """Whether ``message`` could only be copied from the condition, and not be computed."""
    candidates: tuple[CandidateRow, ...]
    suggestions: tuple[Suggestion, ...]
    older_waiting: tuple[str, ...]
    """Older claims that wait too, and are tried first."""
    state: str = ""
    """What its engine does, in a word or two; empty without an instance on a Pod that is there."""
    warning: str = ""
    """What could not be looked at."""

    @property
    def condition(self) -> Condition | None:
        """What the operator published of its last try."""
        return find_condition(self.claim.status.conditions, ConditionType.SCHEDULED)

    @property
    def is_as_published(self) -> bool:
        """Whether the ``Scheduled`` condition says the same, to the letter."""
        published = self.condition
        return published is not None and (published.reason, published.message) == (self.reason, bounded(self.message))


def report(fleet: Fleet, claim: Claim, *, is_reached: bool, warning: str = "") -> ClaimReport:
    """Explain ``claim``, one of the fleet's. ``is_reached`` is False when no runtime at all answered, so that only
    statuses tell who is where; ``warning`` says what else could not be looked at."""
    return dataclasses.replace(_report(fleet, claim, is_reached=is_reached), warning=warning)


def _report(fleet: Fleet, claim: Claim, *, is_reached: bool) -> ClaimReport:
    if claim.is_deleting:
        return _bare(claim, Outcome.LEAVES, "", "it is being deleted: its engine drains, and then its room is free")
    if claim.engine_error:
        message = f"invalid engineConfig parallelism: {claim.engine_error}"
        return _bare(claim, Outcome.INVALID, Reason.INVALID_ENGINE_CONFIG, message)
    if claim.seat is None:
        return _bare(claim, Outcome.INVALID, Reason.INVALID_PER_GPU, f"{claim.model} is not placed: {claim.seat_error}")
    verdict = judging.judge(fleet, claim, claim.seat)
    accounts = [verdict.accounts[p.name] for p in verdict.pods]
    rows = tuple(_row(fleet, claim, claim.seat, views.view(a), is_reached=is_reached) for a in accounts)
    if claim.status.instances:
        where = ", ".join(i.pod for i in claim.status.instances)
        state = _state(claim, verdict.accounts)
        return ClaimReport(claim, Outcome.PLACED, where, "", "", False, rows, (), (), state)
    older = tuple(c.name for c in fleet.claims if c.age_key < claim.age_key and _waits(c))
    if rows and not is_reached:
        published = find_condition(claim.status.conditions, ConditionType.SCHEDULED)
        reason, message = ("", "") if published is None else (published.reason, published.message)
        return ClaimReport(claim, Outcome.UNKNOWN, "", reason, message, True, rows, (), older)
    if isinstance(verdict.answer, Refused):
        suggestions = making_way.suggest(fleet, claim, claim.seat, accounts)
        answer = verdict.answer
        return ClaimReport(claim, Outcome.WAITS, "", answer.reason, answer.message, False, rows, suggestions, older)
    where = verdict.answer.pod if isinstance(verdict.answer, Placed) else ""
    return ClaimReport(claim, Outcome.FITS, where, "", "", False, rows, (), older)


def _state(claim: Claim, accounts: Mapping[str, Account]) -> str:
    """Of its engines, oldest instance first."""
    sittings = (sitting_of(accounts, claim, i.pod) for i in claim.status.instances)
    return ", ".join(views.state_of(s) for s in sittings if s is not None)


def _bare(claim: Claim, outcome: Outcome, reason: str, message: str) -> ClaimReport:
    where = ", ".join(i.pod for i in claim.status.instances)
    return ClaimReport(claim, outcome, where, reason, message, False, (), (), ())


def _waits(claim: Claim) -> bool:
    return claim.may_be_placed and not claim.status.instances


def _row(fleet: Fleet, claim: Claim, seat: Seat, card: CardView, *, is_reached: bool) -> CandidateRow:
    if claim.instance_on(card.pod) is not None:
        return CandidateRow(card, Fit.YES, "")
    if not is_reached:
        return CandidateRow(card, Fit.UNKNOWN, "its runtime cannot be reached from here")
    answer = judging.judge_pod(fleet, claim, seat, card.pod)
    if not isinstance(answer, Refused):
        return CandidateRow(card, Fit.YES, "")
    return CandidateRow(card, *_lacks(seat.total_bytes, card, answer))


def _lacks(need_bytes: int, card: CardView, answer: Refused) -> tuple[Fit, str]:
    """How far off it is; of an obstacle that is not room, the words that a condition would have."""
    usable, ever, now = card.usable_bytes, card.room_ever_bytes, card.room_now_bytes
    if card.hole or usable is None or ever is None or now is None:
        return Fit.NO, _words(answer)
    if usable < need_bytes:
        return Fit.NO, f"the card is {figures.gib(need_bytes - usable)} too small"
    if ever < need_bytes:
        return Fit.NO, f"lacks {figures.gib(need_bytes - ever)}, with every engine at its floor"
    if now < need_bytes:
        return Fit.LATER, f"lacks {figures.gib(need_bytes - now)} until engines give KV back"
    return Fit.NO, _words(answer)


def _words(answer: Refused) -> str:
    """What a refusal by one Pod says of that Pod."""
    return answer.message.partition(" on a card: ")[2] or answer.message


def to_json(report_: ClaimReport) -> dict[str, Any]:
    """The report for programs: bytes as integers, what is not known as null."""
    claim = report_.claim
    seat = claim.seat
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "model": claim.model,
        "engine": claim.spec.engine,
        "gpus": claim.parallelism,
        "footprintBytes": None if seat is None else seat.footprint_bytes,
        "kvFloorBytes": None if seat is None else seat.kv_floor_bytes,
        "needBytes": None if seat is None else seat.total_bytes,
        "phase": claim.status.phase,
        "conditions": [c.model_dump(mode="json", by_alias=True) for c in claim.status.conditions],
        "outcome": report_.outcome,
        "where": report_.where,
        "state": report_.state,
        "reason": report_.reason,
        "message": report_.message,
        "messageIsFromCondition": report_.is_from_condition,
        "conditionSaysTheSame": report_.is_as_published,
        "candidates": [{**row.card.to_json(), "fits": row.fit, "whyNot": row.why_not} for row in report_.candidates],
        "suggestions": [
            {
                "pod": s.pod,
                "delete": list(s.claims),
                "leaving": list(s.leaving),
                "freedBytes": s.freed_bytes,
                "requests": s.requests,
            }
            for s in report_.suggestions
        ],
        "olderWaiting": list(report_.older_waiting),
        "warning": report_.warning,
    }
