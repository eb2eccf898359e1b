"""Starting engines whose instance is recorded, and holding engines off the route to their record."""

from __future__ import annotations

import re

from aibrix_operator.api.modelclaim import InstancePhase, Reason
from aibrix_operator.ledger import figures
from aibrix_operator.modelclaim import cards
from aibrix_operator.modelclaim.accounts import Account, Sitting
from aibrix_operator.modelclaim.draft import BOOT_PACE_S, ROUND_S, Draft, pod_ref
from aibrix_operator.modelclaim.health import Verdict
from aibrix_operator.modelclaim.memory import LimitWrite
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.modelclaim.steps import Activate, EventType, Note
from aibrix_operator.runtime_api import wire

LIMIT_EVENT_S = 300.0
"""KVLimitFailed of one engine is raised at most this often."""


def ipc_name(claim: str) -> str:
    """Name of the KV segment of the claim's engine, fit for a file name."""
    return "kvc_" + re.sub(r"[^A-Za-z0-9_-]", "-", claim)


def has_started(sitting: Sitting, draft: Draft, pod_uid: str) -> bool:
    """Whether the runtime did not refuse the start: it answered so, or the engine has been seen."""
    return (
        sitting.engine is not None
        or sitting.instance.port > 0
        or sitting.instance.phase is not InstancePhase.ACTIVATING
        or pod_uid in draft.claim_memory(sitting.claim).started_on
    )


def start_engine(account: Account, sitting: Sitting, draft: Draft) -> None:
    """Ask for the engine of a recorded instance that the runtime does not list. Idempotent, by model name."""
    pod, claim, memory = account.pod, sitting.claim, draft.claim_memory(sitting.claim)
    if not sitting.is_recorded or claim.is_writing or claim.is_deleting or not draft.is_free(pod):
        return
    if sitting.instance.phase is not InstancePhase.ACTIVATING or sitting.engine is not None:
        return
    if pod.uid in memory.refused_on or pod.uid in memory.passed_over:
        return  # the record is about to be taken back
    snapshot = pod.reading.snapshot
    if snapshot is None or account.hole or any(m.model_name == claim.model for m in snapshot.models):
        return
    if account.has_cards and sitting.instance.kv_limit_bytes <= 0:
        return  # its card has yet to be divided for it
    if draft.now.monotonic_s < memory.start_again_s:
        draft.wake_pod_at(pod, memory.start_again_s)
        return
    draft.ask(pod, Activate(pod_ref(pod), claim.uid, activate_request(claim)))


def activate_request(claim: Claim) -> wire.ActivateRequest:
    """The call that starts the claim's engine; the runtime picks the port."""
    config = claim.spec.engine_config
    return wire.ActivateRequest(
        model_name=claim.model,
        artifact_url=claim.spec.artifact_url,
        engine=claim.spec.engine,
        ipc_name=ipc_name(claim.name),
        engine_config=None if config is None else wire.EngineConfig(args=config.args),
        claim_ref=wire.ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid),
    )


def hold_to_record(account: Account, sitting: Sitting, verdict: Verdict, draft: Draft) -> tuple[Note, ...]:
    """Write the record to an engine that waits for it off the route, and tell what came of the last write."""
    pod, claim, memory = account.pod, sitting.claim, draft.claim_memory(sitting.claim)
    if verdict.is_above_record:
        draft.remember_claim(claim, not_held_bytes=sitting.limit_in_force)
        draft.unrouting.add(pod.uid)
    write = memory.limit_write
    if write is not None and write.pod_uid == pod.uid and pod.reading.sequence > write.after_reading:
        if sitting.limit_in_force == write.limit_bytes:
            draft.remember_claim(claim, limit_write=None, not_held_bytes=None, limit_failed_s=None)
            return (_limit_set(sitting, pod.name, write, memory.not_held_bytes is not None),)
        notes = _limit_failed(sitting, pod.name, write, draft)
    elif memory.not_held_bytes is not None and verdict.instance.phase is InstancePhase.ACTIVE:
        draft.remember_claim(claim, not_held_bytes=None)
        if memory.not_held_bytes > sitting.limit_in_force:  # the card's division wrote it
            by_division = LimitWrite(pod.uid, sitting.limit_in_force, memory.not_held_bytes, 0.0, 0)
            return (_limit_set(sitting, pod.name, by_division, was_above=True),)
        notes = ()
    else:
        notes = ()
    if verdict.limit_to_write is None:
        return notes
    is_unjudged = bool(account.hole) or cards.is_beyond_card(account, sitting)
    grows_unjudged = is_unjudged and verdict.limit_to_write > sitting.limit_in_force
    if grows_unjudged or not draft.is_free(pod) or cards.is_being_divided(pod, claim.name, draft):
        return notes
    now_s = draft.now.monotonic_s
    if write is not None and write.pod_uid == pod.uid and now_s < write.at_s + ROUND_S:
        draft.wake_pod_at(pod, write.at_s + ROUND_S)
        return notes
    record = verdict.limit_to_write
    draft.ask(pod, cards.limit_step(account, {claim.name: record}, "kv-limit"))
    in_force = sitting.limit_in_force
    draft.remember_claim(claim, limit_write=LimitWrite(pod.uid, record, in_force, now_s, pod.reading.sequence))
    draft.look_again(pod, BOOT_PACE_S)
    return notes


def is_about_to_serve(account: Account, sitting: Sitting, verdict: Verdict, draft: Draft) -> bool:
    """Whether a new engine of which nothing was told yet is looked at for the first time, or waits for the limit that
    was just written to it: an engine that is up at once is then told of once. One that boots is told of as it boots."""
    pod, memory = account.pod, draft.claim_memory(sitting.claim)
    is_new = sitting.instance.phase is InstancePhase.ACTIVATING and sitting.instance.port == 0
    if not is_new or verdict.instance.phase is not InstancePhase.ACTIVATING:
        return False
    if pod.uid in memory.refused_on or pod.uid in memory.passed_over:
        return False
    if pod.reading.is_pending:
        return pod.uid in memory.started_on
    write = memory.limit_write
    if write is None or write.pod_uid != pod.uid or write.error or write.at_s + BOOT_PACE_S <= draft.now.monotonic_s:
        return False
    draft.wake_pod_at(pod, write.at_s + BOOT_PACE_S)
    return True


def _limit_set(sitting: Sitting, pod: str, write: LimitWrite, was_above: bool) -> Note:
    to, before = figures.gib(write.limit_bytes), figures.gib(write.from_bytes)
    what = f"KV limit of {to} written over {before}" if was_above else f"KV limit set to {to}, from {before}"
    return Note(EventType.NORMAL, Reason.KV_LIMIT_SET, f"model {sitting.claim.model} on pod {pod}: {what}")


def _limit_failed(sitting: Sitting, pod: str, write: LimitWrite, draft: Draft) -> tuple[Note, ...]:
    """The warning that a written limit is not in force, at most once per five minutes."""
    claim, now_s = sitting.claim, draft.now.monotonic_s
    last_s = draft.claim_memory(claim).limit_failed_s
    if sitting.engine is None or (last_s is not None and now_s - last_s < LIMIT_EVENT_S):
        return ()
    draft.remember_claim(claim, limit_failed_s=now_s)
    limit = figures.gib(write.limit_bytes)
    reports = "no limit" if sitting.limit_in_force < 0 else figures.gib(sitting.limit_in_force)
    what = (
        f"KV limit {limit} could not be set: {write.error}"
        if write.error
        else f"KV limit {limit} was written, and the engine still reports {reports}"
    )
    return (Note(EventType.WARNING, Reason.KV_LIMIT_FAILED, f"model {claim.model} on pod {pod}: {what}"),)
