"""Where waiting claims go: candidates, backoff, and the choice of the ledger. Oldest claim first."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import Reason
from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.placement import Candidate, Obstacle, ObstacleKind, Placed, Refused, place
from aibrix_operator.modelclaim.accounts import Account
from aibrix_operator.modelclaim.draft import PATIENCE_S, Draft
from aibrix_operator.modelclaim.memory import Wait, WaitKind
from aibrix_operator.modelclaim.publish import Scheduled
from aibrix_operator.modelclaim.snapshot import Claim, Pod
from aibrix_operator.runtime_api.wire import EnginePhase

WAITS_S = (10.0, 20.0, 40.0, 60.0)
"""Seconds before each further try; the last one repeats."""


def next_wait(before: Wait | None, kind: WaitKind, claim: Claim, draft: Draft) -> Wait:
    """The wait after one more refusal. A wait that was ended early has been forgotten, and starts from the shortest."""
    tries = before.tries + 1 if before is not None and before.kind is kind else 1
    until_s = draft.now.monotonic_s + WAITS_S[min(tries, len(WAITS_S)) - 1]
    return Wait(kind, tries, until_s, claim.generation, draft.passes)


@dataclass(slots=True)
class Offers:
    """What the Pods of a group have to offer."""

    settled: dict[str, Candidate]
    """Pod name → candidate as a claim with a new model sees it; Pods between two steps are left out."""
    serving: dict[str, dict[str, str]]
    """Model name → Pod name → claim that it is served for there."""
    caching: dict[str, set[str]]
    """Artifact → names of Pods that served it before."""
    refusals: dict[tuple[Seat, str, str], Refused] = field(default_factory=dict)
    """(seat, artifact, claim UID where it matters) → refusal, until something is placed."""


@dataclass(slots=True)
class Group:
    """Claims that may go to the same Pods. What they have in common is computed once a pass for all of them."""

    pods: tuple[Pod, ...]
    names: frozenset[str]
    freed_pass: int
    joined_pass: int
    wanted_gpus: int
    unsettled: set[str]
    """Names of Pods between two steps."""
    offers: Offers | None = None
    """Made for the first claim that is to be placed: in most passes none is, and a candidate costs more than a look."""


@dataclass(slots=True)
class Placements:
    """Placement over one pass: groups, and what this pass has placed so far."""

    draft: Draft
    groups: dict[tuple[str, int], Group] = field(default_factory=dict)
    held_for: dict[str, str] = field(default_factory=dict)
    """Pod name → UID of the claim that room is held for there."""

    def __post_init__(self) -> None:
        """Look the holds up."""
        for pod in self.draft.fleet.pods.values():
            hold = self.draft.card_memory(pod).hold
            if hold is not None:
                self.held_for[pod.name] = hold.claim_uid

    def group_of(self, claim: Claim) -> Group:
        """The Pods that match the claim by label, state and requested GPUs."""
        wanted_gpus = claim.parallelism if claim.spec.engine == "vllm" else 0
        key = (claim.spec.pod_selector.text, wanted_gpus)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = self._open_group(claim, wanted_gpus)
        return group

    def _open_group(self, claim: Claim, wanted_gpus: int) -> Group:
        draft = self.draft
        pods = tuple(p for p in draft.fleet.pods.values() if is_candidate(p, claim, wanted_gpus))
        cards = [draft.card_memory(p) for p in pods]
        return Group(
            pods,
            frozenset(p.name for p in pods),
            freed_pass=max((c.freed_pass for c in cards), default=0),
            joined_pass=max((c.joined_pass for c in cards), default=0),
            wanted_gpus=wanted_gpus,
            unsettled={p.name for p in pods if self._is_unsettled(p)},
        )

    def _offers_of(self, group: Group) -> Offers:
        if group.offers is None:
            group.offers = self._ask_for_offers(group)
        return group.offers

    def _ask_for_offers(self, group: Group) -> Offers:
        serving: dict[str, dict[str, str]] = defaultdict(dict)
        caching: dict[str, set[str]] = defaultdict(set)
        for pod in group.pods:
            for sitting in self.draft.accounts[pod.name].sittings:
                serving[sitting.claim.model][pod.name] = sitting.claim.name
            if pod.reading.snapshot is not None:
                for artifact in pod.reading.snapshot.cached_artifacts:
                    caching[artifact].add(pod.name)
        settled = (p for p in group.pods if p.name not in group.unsettled)
        return Offers({p.name: self._candidate(p, group.wanted_gpus) for p in settled}, serving, caching)

    def is_waiting(self, claim: Claim, group: Group) -> bool:
        """Whether the claim's wait still runs; one that an event ends is forgotten, so the next starts anew."""
        wait = self.draft.claim_memory(claim).wait
        if wait is None or self.draft.now.monotonic_s >= wait.until_s:
            return False
        ended_by = group.freed_pass if wait.kind is WaitKind.ROOM else group.joined_pass
        if claim.generation != wait.generation or ended_by > wait.since_pass:
            self.draft.remember_claim(claim, wait=None)
            return False
        self.draft.wake_at(wait.until_s)
        return True

    def choose(
        self, claim: Claim, seat: Seat, group: Group, leaving: Set[str] = frozenset()
    ) -> Placed | Refused | None:
        """The Pod for the claim, or why there is none; None while a Pod that may take it has yet to be read.

        ``leaving`` are the names of Pods that it is on, which cannot take it.
        """
        if len(group.unsettled) == len(group.pods) and group.pods:
            return None
        offers = self._offers_of(group)
        namesakes = offers.serving.get(claim.model, {})
        is_special = bool(namesakes or leaving or claim.uid in self.held_for.values())
        key = (seat, claim.spec.artifact_url, claim.uid if is_special else "")
        answer: Placed | Refused | None = offers.refusals.get(key)
        if answer is None:
            candidates = self._candidates(claim, offers, namesakes)
            answer = place(claim.model, seat, [c for c in candidates if c.pod not in leaving])
        if isinstance(answer, Refused):
            offers.refusals[key] = answer
            if group.unsettled:
                return None
        return answer

    def _candidates(self, claim: Claim, offers: Offers, namesakes: Mapping[str, str]) -> list[Candidate]:
        """The settled Pods, with what depends on the claim put in where it differs."""
        cached = offers.caching.get(claim.spec.artifact_url, set())
        holds = [pod for pod, uid in self.held_for.items() if uid == claim.uid]
        if not namesakes and not cached and not holds:
            return list(offers.settled.values())
        candidates = []
        for name, candidate in offers.settled.items():
            obstacle = candidate.obstacle
            if obstacle is None and name in namesakes:
                # The runtime keys engines by model name: a second start would return the first one's engine.
                text = f"it serves a model of that name for claim {namesakes[name]}"
                obstacle = Obstacle(ObstacleKind.LEFT_ALONE, text)
            card = candidate.card
            if card is not None and name in holds:
                card = dataclasses.replace(card, reserved_bytes=0)
            if name in cached or obstacle is not candidate.obstacle or card is not candidate.card:
                candidate = dataclasses.replace(candidate, card=card, obstacle=obstacle, artifact_cached=name in cached)
            candidates.append(candidate)
        return candidates

    def seat(self, pod: str, claim: Claim, seat: Seat) -> None:
        """Charge what was chosen, and leave the Pod to it: the next claim sees it once this one is recorded."""
        self.draft.seat(pod, claim.name, seat)
        for group in self.groups.values():
            if pod in group.unsettled or pod not in group.names:
                continue
            group.unsettled.add(pod)
            if group.offers is not None:
                del group.offers.settled[pod]
                group.offers.refusals.clear()

    def _is_unsettled(self, pod: Pod) -> bool:
        """Whether the Pod is between two steps, so that what it has room for is about to be known."""
        draft, account = self.draft, self.draft.accounts[pod.name]
        if pod.busy_since_s is not None and draft.now.monotonic_s - pod.busy_since_s >= PATIENCE_S:
            return False  # it has had its time: claims are told that it does not answer
        division = draft.card_memory(pod).division
        is_promised = pod.name in draft.newcomers or (division is not None and bool(division.newcomer))
        if pod.busy_since_s is not None:
            draft.wake_at(pod.busy_since_s + PATIENCE_S)
        return is_promised or not draft.is_free(pod) or not draft.is_settled(account)

    def _candidate(self, pod: Pod, wanted_gpus: int) -> Candidate:
        account, snapshot = self.draft.accounts[pod.name], pod.reading.snapshot
        obstacle = self._obstacle(account, wanted_gpus)
        if snapshot is None:
            unread = obstacle or Obstacle(ObstacleKind.HOLE, "its runtime has not answered yet")
            return Candidate(pod.name, account.card, unread, state_known=False, memory_known=False)
        free = [a.hbm_free_bytes for a in snapshot.accelerators]
        return Candidate(
            pod.name,
            self.draft.card_of(account),
            obstacle,
            memory_known=bool(free),
            engines_awake=sum(m.alive and m.phase is not EnginePhase.SLEEPING for m in snapshot.models),
            free_bytes=(max if wanted_gpus <= 1 else min)(free, default=0),
            kv_used_bytes=sum(max(m.kv_used_bytes, 0) for m in snapshot.models),
            engines=len(snapshot.models),
            instances=len(account.sittings),
        )

    def _obstacle(self, account: Account, wanted_gpus: int) -> Obstacle | None:
        pod, memory = account.pod, self.draft.card_memory(account.pod)
        if pod.busy_since_s is not None:
            return Obstacle(ObstacleKind.LEFT_ALONE, "its runtime has not answered the last call yet")
        if pod.reading.is_left_alone:
            return Obstacle(ObstacleKind.LEFT_ALONE, pod.reading.error)
        if account.hole:
            return Obstacle(ObstacleKind.HOLE, account.hole)
        if memory.unasked and self.draft.now.monotonic_s < memory.unasked_until_s:
            return Obstacle(ObstacleKind.LEFT_ALONE, memory.unasked)
        snapshot = pod.reading.snapshot
        if snapshot is not None and account.has_cards and pod.gpu_count == 0 and wanted_gpus:
            reported = sum(a.hbm_total_bytes > 0 for a in snapshot.accelerators)
            if reported != wanted_gpus:
                return Obstacle.topology(reported, wanted_gpus)
        if memory.undividable and self.draft.now.monotonic_s < memory.undividable_until_s:
            return Obstacle(ObstacleKind.UNDIVIDABLE, memory.undividable)
        return None


def is_candidate(pod: Pod, claim: Claim, wanted_gpus: int) -> bool:
    """By label, state and requested GPUs; ``wanted_gpus`` 0 (SGLang) takes any number."""
    return (
        pod.is_running
        and pod.labels.get(names.ENABLED_LABEL) == "true"
        and claim.spec.pod_selector.matches(pod.labels)
        and (not wanted_gpus or pod.gpu_count in (0, wanted_gpus))
    )


def refusal(answer: Refused) -> tuple[Scheduled, WaitKind]:
    """A refusal as a condition, and what ends the wait for it."""
    if answer.reason == "TooLargeForAnyCard":
        return Scheduled(False, Reason.TOO_LARGE_FOR_ANY_CARD, answer.message), WaitKind.LARGER_CARD
    return Scheduled(False, Reason.NO_MATCHING_PODS, answer.message), WaitKind.ROOM
