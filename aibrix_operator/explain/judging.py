"""Where a claim could go now: the controller's own placement, asked once and for one claim. Pure.

The answer is what a controller without memory would come to: it knows of no failed division and of no step under way,
and looks at one claim as if no older one waited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime

from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.placement import Placed, Refused
from aibrix_operator.modelclaim.accounts import Account, open_accounts
from aibrix_operator.modelclaim.draft import Draft
from aibrix_operator.modelclaim.placing import Placements
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Moment, Pod

_ANY_MOMENT = Moment(datetime(1970, 1, 1, tzinfo=UTC), 0.0)
"""Placement reads the time only to wait, and nothing waits here."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a claim goes, or why it goes nowhere."""

    answer: Placed | Refused | None
    """None: the Pod that would take it is between two steps, and the next look tells."""
    pods: tuple[Pod, ...]
    """The candidates by label, state and GPU count, by name."""
    accounts: Mapping[str, Account]
    """Pod name → account, of the whole fleet."""


def judge(fleet: Fleet, claim: Claim, seat: Seat) -> Verdict:
    """Ask the placement for ``claim``, which has no instance and declares ``seat``."""
    accounts = open_accounts(fleet)
    placements = Placements(Draft(fleet, _ANY_MOMENT, accounts, {}, {}, passes=1))
    group = placements.group_of(claim)
    pods = tuple(sorted(group.pods, key=lambda p: p.name))
    return Verdict(placements.choose(claim, seat, group), pods, accounts)


def judge_pod(fleet: Fleet, claim: Claim, seat: Seat, pod: str) -> Placed | Refused | None:
    """As if the namespace had this one Pod, so that a refusal is about it."""
    return judge(only_pod(fleet, pod), claim, seat).answer


def only_pod(fleet: Fleet, pod: str) -> Fleet:
    """The fleet without all other Pods."""
    return dataclasses.replace(fleet, pods={pod: fleet.pods[pod]})


def without_claims(fleet: Fleet, gone: Set[str]) -> Fleet:
    """The fleet once the claims of these names were deleted and their engines have exited."""
    accounts = open_accounts(fleet)
    pods = {}
    for name, pod in fleet.pods.items():
        snapshot = pod.reading.snapshot
        exited = {id(s.engine) for s in accounts[name].sittings if s.claim.name in gone and s.engine is not None}
        if snapshot is not None and exited:
            left = tuple(m for m in snapshot.models if id(m) not in exited)
            reading = dataclasses.replace(pod.reading, snapshot=snapshot.model_copy(update={"models": left}))
            pod = dataclasses.replace(pod, reading=reading)
        pods[name] = pod
    return dataclasses.replace(fleet, claims=tuple(c for c in fleet.claims if c.name not in gone), pods=pods)
