"""The plan of a pass while it is being made. Local to one ``decide``; nothing of it survives."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aibrix_operator.api.modelclaim import Instance
from aibrix_operator.ledger.card import Card, Occupant, Seat
from aibrix_operator.modelclaim.accounts import Account, Sitting
from aibrix_operator.modelclaim.memory import Activity, CardMemory, ClaimMemory, Memory
from aibrix_operator.modelclaim.publish import Scheduled
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Moment, Pod
from aibrix_operator.modelclaim.steps import ClaimRef, Note, Plan, PodRef, PoolRef, RuntimeStep, Step

ROUND_S = 10.0
"""The pace of everything that no event announces."""
BOOT_PACE_S = 2.0
"""How often a runtime is read while something on it is about to change."""
PATIENCE_S = 2.0
"""For so long a Pod with a step under way is waited for; after that other claims say that it does not answer."""


_NEW_CLAIM, _NEW_CARD = ClaimMemory(), CardMemory()
"""What is remembered of what was never seen before."""


def pod_ref(pod: Pod) -> PodRef:
    """The Pod as steps name it."""
    return PodRef(pod.namespace, pod.name, pod.uid, pod.ip)


def claim_ref(claim: Claim) -> ClaimRef:
    """The claim as steps name it."""
    return ClaimRef(claim.namespace, claim.name, claim.uid, claim.resource_version)


@dataclass(slots=True)
class Findings:
    """What the pass has found for each claim, on its way into statuses and routes."""

    instances: dict[str, dict[str, Instance]] = field(default_factory=lambda: defaultdict(dict))
    """Pod name → claim UID → instance as it is to be recorded."""
    notes: dict[str, list[Note]] = field(default_factory=lambda: defaultdict(list))
    """Claim UID → Events that go with its status."""
    records: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Claim name → (Pod name, ``kvLimitBytes``) to be recorded now."""
    scheduled: dict[str, Scheduled] = field(default_factory=dict)
    """Claim UID → what its Scheduled condition is to say."""
    candidates: dict[str, int] = field(default_factory=dict)
    """Claim UID → number of candidate Pods."""
    unsaid: set[str] = field(default_factory=set)
    """UIDs of claims whose status is left as it is, because a better one is about to be known."""


@dataclass(slots=True)
class Draft:
    """Collects what a pass asks for and remembers."""

    fleet: Fleet
    now: Moment
    accounts: dict[str, Account]
    """Pod name → account."""
    claims: dict[str, ClaimMemory]
    """Claim UID → memory."""
    cards: dict[str, CardMemory]
    """Pod UID → memory."""
    passes: int
    steps: list[Step] = field(default_factory=list)
    activities: dict[str, Activity] = field(default_factory=dict)
    """When each engine was last seen busy (``activity.key_of`` → Activity)."""
    policy_errors: dict[str, str] = field(default_factory=dict)
    policy_due_s: dict[str, float] = field(default_factory=dict)
    notes: list[tuple[ClaimRef | PoolRef, Note]] = field(default_factory=list)
    helpless: list[tuple[str, Claim]] = field(default_factory=list)
    """(Pod name, claim) of sleepers that were asked for and that no sleep of a neighbour can help."""
    unrouted: set[tuple[str, str]] = field(default_factory=set)
    """(Pod UID, claim name) of routes to be taken away, because their engine is about to be stopped."""
    takes_back: bool = False
    """A record goes because its engine was not started: its claim wants a place, or goes back to where it was."""
    drop_wakes: set[tuple[str, str]] = field(default_factory=set)
    """(Pod UID, claim name) of wake requests to be taken off their Pod."""
    unrouting: set[str] = field(default_factory=set)
    """UIDs of Pods with an engine above its record, which leaves the route before its limit is written."""
    off_route: set[str] = field(default_factory=set)
    """UIDs of claims whose engine is on its way to sleep: no request is to reach it."""
    about_to_serve: set[str] = field(default_factory=set)
    """UIDs of claims whose engine is one reading or one limit away from its route: what is said of it now is said
    once with that, and a writer is spared two of four writes."""
    adopted: dict[str, Instance] = field(default_factory=dict)
    """UID of a claim without a record, whose engine runs → the instance that it gets back."""
    awaited: set[str] = field(default_factory=set)
    """UIDs of claims without a record, whose engine may run where nothing can be said now: they are not placed."""
    asked: set[str] = field(default_factory=set)
    """UIDs of Pods whose runtime gets a step in this pass."""
    newcomers: dict[str, Occupant] = field(default_factory=dict)
    """Pod name → the claim that a placement under way will seat there, beside the account."""
    look_again_s: dict[str, float] = field(default_factory=dict)
    wake_at_s: float | None = None
    wake_pods_at_s: dict[str, float] = field(default_factory=dict)
    """Pod name → when."""
    _unsure_pods: frozenset[str] = field(init=False)
    """Names of Pods where somebody may be recorded that is not seen there."""

    def __post_init__(self) -> None:
        self._unsure_pods = frozenset(pod for claim in self.fleet.claims for pod in claim.unsure_pods)

    def claim_memory(self, claim: Claim) -> ClaimMemory:
        """What is remembered of the claim."""
        return self.claims.get(claim.uid, _NEW_CLAIM)

    def remember_claim(self, claim: Claim, **changes: Any) -> None:
        """Change what is remembered of the claim."""
        self.claims[claim.uid] = dataclasses.replace(self.claim_memory(claim), **changes)

    def card_memory(self, pod: Pod) -> CardMemory:
        """What is remembered of the Pod's card."""
        return self.cards.get(pod.uid, _NEW_CARD)

    def remember_card(self, pod: Pod, **changes: Any) -> None:
        """Change what is remembered of the Pod's card."""
        self.cards[pod.uid] = dataclasses.replace(self.card_memory(pod), **changes)

    def ask(self, pod: Pod, step: RuntimeStep) -> None:
        """Give the Pod's runtime its one step of this pass."""
        self.steps.append(step)
        self.asked.add(pod.uid)

    def is_free(self, pod: Pod) -> bool:
        """Whether the Pod's runtime may be given a step: none is under way, and its last one has been looked at."""
        return pod.busy_since_s is None and not pod.reading.is_pending and pod.uid not in self.asked

    def is_settled(self, account: Account) -> bool:
        """Whether everything recorded on the card is acknowledged (no status write of a claim on it is under way, and
        none that may have put another claim there), and nobody there has been asked to stop: what a leaver had is given
        away once it has left."""
        uid = account.pod.uid
        return account.pod.name not in self._unsure_pods and not any(
            s.claim.is_writing or (s.claim.is_deleting and uid in self.claim_memory(s.claim).asked_to_stop)
            for s in account.sittings
        )

    def note(self, claim: Claim, note: Note) -> None:
        """Raise an Event that hangs on no status write."""
        self.notes.append((claim_ref(claim), note))

    def look_again(self, pod: Pod, seconds: float) -> None:
        """Read the Pod's runtime again after ``seconds`` at the latest."""
        self.look_again_s[pod.uid] = min(seconds, self.look_again_s.get(pod.uid, seconds))

    def wake_at(self, monotonic_s: float) -> None:
        """Make another pass over the same at that moment at the latest."""
        self.wake_at_s = monotonic_s if self.wake_at_s is None else min(self.wake_at_s, monotonic_s)

    def wake_pod_at(self, pod: Pod, monotonic_s: float) -> None:
        """Make a pass over this Pod at that moment at the latest: what is awaited can be judged there alone."""
        self.wake_pods_at_s[pod.name] = min(monotonic_s, self.wake_pods_at_s.get(pod.name, monotonic_s))

    def seat(self, pod: str, claim: str, seat: Seat) -> None:
        """Charge a claim that this pass begins to place, before anything else is placed beside it."""
        self.newcomers[pod] = Occupant(claim, seat)

    def card_of(self, account: Account) -> Card | None:
        """The card with the newcomer charged that a placement under way will seat there."""
        newcomer = self.newcomers.get(account.pod.name)
        if account.card is None or newcomer is None:
            return account.card
        return account.card.with_occupant(newcomer)

    def finish(self) -> tuple[Plan, Memory]:
        """The plan and what to remember; memory of objects that are gone is dropped by a whole pass."""
        pod_uids = {p.uid for p in self.fleet.pods.values()}
        memory = Memory(
            passes=self.passes,
            cards=self.cards,
            claims=self.claims,
            activities=self.activities,
            policy_errors=self.policy_errors,
            policy_due_s=self.policy_due_s,
        )
        if self.fleet.is_whole:
            claim_uids = {c.uid for c in self.fleet.claims}
            memory = dataclasses.replace(
                memory,
                cards={uid: m for uid, m in self.cards.items() if uid in pod_uids},
                claims={uid: m for uid, m in self.claims.items() if uid in claim_uids},
                activities={k: a for k, a in self.activities.items() if k.partition("/")[0] in pod_uids},
                policy_due_s={uid: due_s for uid, due_s in self.policy_due_s.items() if uid in pod_uids},
            )
        now_s = self.now.monotonic_s
        wake_after_s = None if self.wake_at_s is None else max(0.0, self.wake_at_s - now_s)
        wake_pods_after_s = {pod: max(0.0, due_s - now_s) for pod, due_s in self.wake_pods_at_s.items()}
        pace_s = {uid: self.look_again_s.get(uid, ROUND_S) for uid in sorted(pod_uids)}
        has_room_come_free = any(self.cards[uid].freed_pass == self.passes for uid in pod_uids & self.cards.keys())
        wants_whole = not self.fleet.is_whole and (has_room_come_free or bool(self.helpless) or self.takes_back)
        plan = Plan(tuple(self.steps), tuple(self.notes), pace_s, wake_after_s, wake_pods_after_s, wants_whole)
        return plan, memory


def sitting_of(accounts: Mapping[str, Account], claim: Claim, pod: str) -> Sitting | None:
    """The claim's sitting on that Pod, or None."""
    account = accounts.get(pod)
    if account is None:
        return None
    return next((s for s in account.sittings if s.claim.uid == claim.uid), None)
