"""What became of earlier runtime steps, folded into memory. An outcome is told once; what matters of it is kept here
until a reading or an acknowledged status shows it."""

from __future__ import annotations

import dataclasses

from aibrix_operator.modelclaim import activity, sleeping, waking
from aibrix_operator.modelclaim.draft import ROUND_S, Draft
from aibrix_operator.modelclaim.memory import WaitKind
from aibrix_operator.modelclaim.placing import next_wait
from aibrix_operator.modelclaim.snapshot import Claim, Finished
from aibrix_operator.modelclaim.steps import Activate, Deactivate, SetLimits, Sleep, Wake
from aibrix_operator.runtime_api.outcome import Done, NotSent, Unknown


def fold(draft: Draft) -> None:
    """Remember what ended since the last pass, and forget refusals that are carried out."""
    claims = {c.uid: c for c in draft.fleet.claims}
    for finished in draft.fleet.finished:
        match finished.step:
            case Activate(claim_uid=uid) if uid in claims:
                _started(claims[uid], finished, draft)
            case Deactivate(claim_uid=uid) if uid in claims:
                asked = draft.claim_memory(claims[uid]).asked_to_stop | {finished.step.pod.uid}
                draft.remember_claim(claims[uid], asked_to_stop=asked)
            case SetLimits():
                _limit_failed(finished, draft)
            case Sleep(claim_uid=uid) if uid in claims:
                _sleep_ended(claims[uid], finished, draft)
            case Wake(claim_uid=uid) if uid in claims:
                waking.came_of_wake(claims[uid], finished.step.pod, finished.result, draft)
            case _:
                pass  # the claim is gone, and its engine will be a stranger on its card
    for claim in draft.fleet.claims:
        _forget_carried_out(claim, draft)


def _started(claim: Claim, finished: Finished, draft: Draft) -> None:
    """Sort the outcome of a start: done or unknown keeps the record, known not done takes it back."""
    pod_uid, pod_name = finished.step.pod.uid, finished.step.pod.name
    memory = draft.claim_memory(claim)
    instance = claim.instance_on(pod_name)
    has_run = pod_uid in memory.started_on or (instance is not None and instance.port > 0)
    match finished.result:
        case Done():
            draft.remember_claim(claim, started_on=memory.started_on | {pod_uid}, wait=None, moved_from=())
        case Unknown():
            again_s = draft.now.monotonic_s + ROUND_S
            draft.remember_claim(claim, started_on=memory.started_on | {pod_uid}, wait=None, moved_from=())
            draft.remember_claim(claim, start_again_s=again_s)
            draft.wake_at(again_s)
        case NotSent() if has_run:
            draft.remember_claim(claim, start_again_s=draft.now.monotonic_s + ROUND_S)
            draft.wake_at(draft.now.monotonic_s + ROUND_S)
        case NotSent(left_alone=True, message=message):
            draft.remember_claim(claim, passed_over=memory.passed_over | {pod_uid})
            pod = draft.fleet.pods.get(pod_name)
            if pod is not None and pod.uid == pod_uid:
                draft.remember_card(pod, unasked=message, unasked_until_s=draft.now.monotonic_s + ROUND_S)
        case not_done:
            message = not_done.message
            if has_run:
                message = f"model {claim.model} had no engine on pod {pod_name}, and starting one failed: {message}"
            wait = next_wait(memory.wait, WaitKind.START, claim, draft)
            draft.remember_claim(claim, refused_on={**memory.refused_on, pod_uid: message}, wait=wait)
            draft.wake_at(wait.until_s)


def _limit_failed(finished: Finished, draft: Draft) -> None:
    """Keep the runtime's words for a limit that was written before routing."""
    if isinstance(finished.result, Done):
        return
    for claim in draft.fleet.claims:
        write = draft.claim_memory(claim).limit_write
        if write is not None and write.pod_uid == finished.step.pod.uid:
            draft.remember_claim(claim, limit_write=dataclasses.replace(write, error=finished.result.message))


def _sleep_ended(claim: Claim, finished: Finished, draft: Draft) -> None:
    """A sleep that is known not done is called off; the engine may serve, and counts as busy since now. What came of
    any other is for the next reading to tell."""
    account = draft.accounts.get(finished.step.pod.name)
    if isinstance(finished.result, Done | Unknown) or account is None or account.pod.uid != finished.step.pod.uid:
        return
    sleeping.call_off(claim, account.pod, draft)
    for sitting in account.sittings:
        if sitting.claim.uid == claim.uid:
            activity.busy_now(account, sitting, draft)


def _forget_carried_out(claim: Claim, draft: Draft) -> None:
    memory = draft.claims.get(claim.uid)
    if memory is None or claim.is_writing or not (memory.refused_on or memory.passed_over or memory.asked_to_stop):
        return
    recorded = {draft.fleet.pods[i.pod].uid for i in claim.status.instances if i.pod in draft.fleet.pods}
    draft.remember_claim(
        claim,
        refused_on={uid: text for uid, text in memory.refused_on.items() if uid in recorded},
        passed_over=memory.passed_over & recorded,
        asked_to_stop=memory.asked_to_stop & recorded,
        started_on=memory.started_on & recorded,
    )
