"""Where waiting claims go: candidates, backoff, and the choice of the ledger. Oldest claim first."""

from __future__ import annotations

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
class Group:
    """Claims that may go to the same Pods, which are looked up once for all of them."""

    pods: tuple[Pod, ...]
    freed_pass: int
    joined_pass: int
    refusals: dict[tuple[Seat, str], tuple[int, Refused]] = field(default_factory=dict)
    """(seat, artifact) → refusal and the number of placements it was given after."""


@dataclass(slots=True)
class Placements:
    """Placement over one pass: groups, candidates, and what this pass has placed so far."""

    draft: Draft
    groups: dict[tuple[str, int], Group] = field(default_factory=dict)
    placed: int = 0
    unsettled: dict[str, bool] = field(default_factory=dict)

    def group_of(self, claim: Claim) -> Group:
        """The Pods that match the claim by label, state and requested GPUs."""
        wanted_gpus = claim.parallelism if claim.spec.engine == "vllm" else 0
        key = (claim.spec.pod_selector.model_dump_json(), wanted_gpus)
        group = self.groups.get(key)
        if group is None:
            pods = tuple(p for p in self.draft.fleet.pods.values() if _is_candidate(p, claim, wanted_gpus))
            cards = [self.draft.card_memory(p) for p in pods]
            group = Group(
                pods, max((c.freed_pass for c in cards), default=0), max((c.joined_pass for c in cards), default=0)
            )
            self.groups[key] = group
        return group

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

    def choose(self, claim: Claim, seat: Seat, group: Group) -> Placed | Refused | None:
        """The Pod for the claim, or why there is none; None while a Pod that may take it has yet to be read."""
        settled = [p for p in group.pods if not self._is_unsettled(p)]
        key = (seat, claim.spec.artifact_url)
        known = group.refusals.get(key)
        if known is not None and known[0] == self.placed:
            answer: Placed | Refused = known[1]
        else:
            answer = place(claim.model, seat, [self._candidate(p, claim) for p in settled])
        if isinstance(answer, Refused):
            # The text names the model only where its runtime is left alone, and then the first claim's serves all.
            group.refusals[key] = (self.placed, answer)
            if len(settled) < len(group.pods):
                return None
        return answer

    def seat(self, pod: str, claim: Claim, seat: Seat) -> None:
        """Charge what was chosen, so that the next claim sees it."""
        self.placed += 1
        self.draft.seat(pod, claim.name, seat)
        self.unsettled[self.draft.fleet.pods[pod].uid] = True

    def _is_unsettled(self, pod: Pod) -> bool:
        """Whether the Pod is between two steps, so that what it has room for is about to be known."""
        known = self.unsettled.get(pod.uid)
        if known is None:
            known = self.unsettled[pod.uid] = self._compute_unsettled(pod)
        return known

    def _compute_unsettled(self, pod: Pod) -> bool:
        draft, account = self.draft, self.draft.accounts[pod.name]
        if pod.busy_since_s is not None and draft.now.monotonic_s - pod.busy_since_s >= PATIENCE_S:
            return False  # it has had its time: claims are told that it does not answer
        division = draft.card_memory(pod).division
        is_promised = pod.name in draft.newcomers or (division is not None and bool(division.newcomer))
        if pod.busy_since_s is not None:
            draft.wake_at(pod.busy_since_s + PATIENCE_S)
        return is_promised or not draft.is_free(pod) or not draft.is_settled(account)

    def _candidate(self, pod: Pod, claim: Claim) -> Candidate:
        account = self.draft.accounts[pod.name]
        snapshot = pod.reading.snapshot
        obstacle = self._obstacle(account, claim)
        if snapshot is None:
            unread = obstacle or Obstacle(ObstacleKind.HOLE, "its runtime has not answered yet")
            return Candidate(pod.name, account.card, unread, state_known=False, memory_known=False)
        free = [a.hbm_free_bytes for a in snapshot.accelerators]
        return Candidate(
            pod.name,
            self.draft.card_of(account),
            obstacle,
            artifact_cached=claim.spec.artifact_url in snapshot.cached_artifacts,
            memory_known=bool(free),
            engines_awake=sum(m.alive and m.phase is not EnginePhase.SLEEPING for m in snapshot.models),
            free_bytes=(max if claim.parallelism == 1 else min)(free, default=0),
            kv_used_bytes=sum(max(m.kv_used_bytes, 0) for m in snapshot.models),
            engines=len(snapshot.models),
            instances=len(account.sittings),
        )

    def _obstacle(self, account: Account, claim: Claim) -> Obstacle | None:
        pod, memory = account.pod, self.draft.card_memory(account.pod)
        if pod.busy_since_s is not None:
            return Obstacle(ObstacleKind.LEFT_ALONE, "its runtime has not answered the last call yet")
        if pod.reading.is_left_alone:
            return Obstacle(ObstacleKind.LEFT_ALONE, pod.reading.error)
        if account.hole:
            return Obstacle(ObstacleKind.HOLE, account.hole)
        if any(s.claim.model == claim.model for s in account.sittings):
            return Obstacle(ObstacleKind.LEFT_ALONE, f"it serves a model of that name for {_namesake(account, claim)}")
        snapshot = pod.reading.snapshot
        if snapshot is not None and account.has_cards and pod.gpu_count == 0 and claim.spec.engine == "vllm":
            reported = sum(a.hbm_total_bytes > 0 for a in snapshot.accelerators)
            if reported != claim.parallelism:
                return Obstacle.topology(reported, claim.parallelism)
        if memory.undividable and self.draft.now.monotonic_s < memory.undividable_until_s:
            return Obstacle(ObstacleKind.UNDIVIDABLE, memory.undividable)
        return None


def _namesake(account: Account, claim: Claim) -> str:
    return next(f"claim {s.claim.name}" for s in account.sittings if s.claim.model == claim.model)


def _is_candidate(pod: Pod, claim: Claim, wanted_gpus: int) -> bool:
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
