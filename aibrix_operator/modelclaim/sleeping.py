"""Putting engines to sleep: off the route, looked at again, then asleep. One engine of a card at a time."""

from __future__ import annotations

import dataclasses

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import InstancePhase, Reason
from aibrix_operator.ledger import figures
from aibrix_operator.modelclaim import activity
from aibrix_operator.modelclaim.accounts import Account, Sitting, is_serving, lent_bytes
from aibrix_operator.modelclaim.draft import ROUND_S, Draft, pod_ref
from aibrix_operator.modelclaim.memory import GoingToSleep
from aibrix_operator.modelclaim.snapshot import Claim, Pod
from aibrix_operator.modelclaim.steps import EventType, Note, PoolRef, Sleep
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState

SETTLE_S = 1.0
"""Between the route's going and the look that proves idleness: gateways learn of it, and what they sent arrives."""
LOOK_S = 0.2
"""A look that is asked for is mostly there so soon."""


def watch_policies(draft: Draft) -> None:
    """Say once that a pool's policy cannot be read, and once that it can be again."""
    pools = {p.pool.uid: p.pool for p in draft.fleet.pods.values() if p.pool is not None}
    for uid, pool in pools.items():
        about, told = PoolRef(pool.namespace, pool.deployment, uid), draft.policy_errors.get(uid, "")
        key = names.POOL_POLICY_ANNOTATION
        problem = f"{pool.error_class}\n{pool.annotation}" if pool.error_class else ""
        if problem and problem != told:
            message = f"invalid {key} annotation ({pool.error_class}), pool policy disabled: {pool.error}"
            draft.notes.append((about, Note(EventType.WARNING, Reason.INVALID_POOL_POLICY, message)))
        elif told and not problem:
            message = f"{key} annotation is valid again, pool policy execution resumed"
            draft.notes.append((about, Note(EventType.NORMAL, Reason.POOL_POLICY_VALID, message)))
        draft.policy_errors[uid] = problem


def apply_policies(draft: Draft) -> None:
    """Choose idle engines to put to sleep, at most once per round and Pod."""
    now_s = draft.now.monotonic_s
    for account in draft.accounts.values():
        pool = account.pod.pool
        lifecycle = None if pool is None else pool.lifecycle
        if pool is None or lifecycle is None or not lifecycle.sleep_after_seconds:
            continue
        due_s = draft.policy_due_s.get(account.pod.uid, 0.0)
        if now_s < due_s:
            draft.wake_pod_at(account.pod, due_s)
            continue
        draft.policy_due_s[account.pod.uid] = now_s + ROUND_S
        window = lifecycle.sleep_after_seconds
        if account.pod.labels.get(names.ENABLED_LABEL) != "true" or not may_choose(account, draft):
            continue
        idle = [(activity.idle_s(account, s, draft), s) for s in sleepable(account, draft)]
        for seconds, sitting in sorted(idle, key=lambda pair: (-pair[0], pair[1].claim.name)):
            if seconds >= window:
                operation = f"pool-policy-sleep/{pool.namespace}/{pool.deployment}"
                send_to_sleep(account, sitting, seconds, operation, draft, window_s=window)
                break
            draft.wake_pod_at(account.pod, now_s + max(window - seconds, 0.1))


def may_choose(account: Account, draft: Draft) -> bool:
    """Whether an engine of this Pod may be chosen now: it can be read, and none is on its way to sleep or from it."""
    if account.pod.reading.snapshot is None or not account.pod.is_running:
        return False
    for sitting in account.sittings:
        memory = draft.claim_memory(sitting.claim)
        request = memory.wake_request
        if memory.going_to_sleep is not None or (request is not None and request.sent_s is not None):
            return False
    # One engine that cannot be asked leaves all of them awake: what looks idle may be what its neighbour starves.
    return all(s.engine is not None and s.engine.request_metrics_observed for s in account.sittings if is_serving(s))


def sleepable(account: Account, draft: Draft) -> list[Sitting]:
    """Engines that could be put to sleep if they are idle: serving, and nothing else is being done about them."""
    return [
        s
        for s in account.sittings
        if is_serving(s)
        and _can_sleep(s)
        and s.is_recorded
        and not s.claim.is_deleting
        and not s.claim.is_writing
        and draft.claim_memory(s.claim).limit_write is None
        and names.wake_annotation(s.claim.name) not in account.pod.annotations
    ]


def _can_sleep(sitting: Sitting) -> bool:
    """By its runtime's word; one that does not say, as upstream's, puts vLLM to sleep and nothing else."""
    engine = sitting.engine
    if engine is None or engine.can_sleep is None:
        return sitting.claim.spec.engine == "vllm"
    return engine.can_sleep


def send_to_sleep(
    account: Account,
    sitting: Sitting,
    idle_s: float,
    operation: str,
    draft: Draft,
    *,
    waker: str = "",
    for_uid: str = "",
    window_s: int = 0,
) -> None:
    """Begin: the route goes first. The operation id carries the start of the idleness, so a retry is the same one."""
    engine, snapshot = sitting.engine, account.pod.reading.snapshot
    assert engine is not None
    assert snapshot is not None
    idle_since_ns = int((snapshot.observed_at.timestamp() - idle_s) * 1_000) * 1_000_000
    parts = (operation, account.pod.uid, engine.ipc_name, for_uid, str(idle_since_ns))
    operation_id = "/".join(part for part in parts if part)
    going = GoingToSleep(account.pod.uid, operation_id, idle_s, engine.request_success_total, waker, for_uid, window_s)
    draft.remember_claim(sitting.claim, going_to_sleep=going)
    draft.off_route.add(sitting.claim.uid)


def put_back(account: Account, draft: Draft) -> None:
    """Put a sleeper to sleep again that came back awake (a crash, a hand) after its seat was given away, when its card
    has no room for it now. It is on no route, so nobody is served by it; who asks for it waits for room as ever."""
    pod, card, snapshot = account.pod, account.beside, account.pod.reading.snapshot
    if card is None or snapshot is None or min(card.room_ever_bytes, card.room_now_bytes) >= 0:
        return
    now_s = draft.now.monotonic_s
    for sitting in account.sittings:
        if _came_back(sitting, account, draft) and draft.is_free(pod) and may_choose(account, draft):
            assert sitting.engine is not None
            again_s = draft.claim_memory(sitting.claim).put_back_s + ROUND_S
            if now_s < again_s:  # it was asked to, and came to nothing
                draft.wake_pod_at(pod, again_s)
                continue
            draft.remember_claim(sitting.claim, put_back_s=now_s)
            observed_ns = int(snapshot.observed_at.timestamp() * 1_000_000) * 1_000
            operation_id = f"put-back/{pod.uid}/{sitting.engine.ipc_name}/{observed_ns}"
            request = wire.SleepRequest(
                model_name=sitting.claim.model, level=wire.SLEEP_LEVEL, operation_id=operation_id
            )
            draft.ask(pod, Sleep(pod_ref(pod), sitting.claim.uid, request))


def _came_back(sitting: Sitting, account: Account, draft: Draft) -> bool:
    claim, engine = sitting.claim, sitting.engine
    return (
        engine is not None
        and engine.phase is EnginePhase.ACTIVE
        and engine.ready
        and engine.request_metrics_observed
        and engine.requests_running + engine.requests_waiting == 0
        and sitting.instance.phase is InstancePhase.ACTIVATING
        and _has_lent(sitting, account.pod, draft)
        and engine.can_sleep is not False  # it has slept, whatever its kind
        and sitting.is_recorded
        and not claim.is_deleting
        and not claim.is_writing
        and draft.claim_memory(claim).wake_request is None
        and not _is_routed(account, sitting)
    )


def _has_lent(sitting: Sitting, pod: Pod, draft: Draft) -> bool:
    """Whether its seat was given away. A record below its floor alone does not say so: the claim may have been
    declared larger since it was placed, and nobody is put to sleep for that."""
    record, seat = sitting.instance.kv_limit_bytes, sitting.claim.seat
    is_lent = record == 0 or draft.claim_memory(sitting.claim).lent_on == pod.uid
    return is_lent and seat is not None and record < seat.kv_floor_bytes


def call_off_unseated(draft: Draft) -> None:
    """Call off the sleep of who is recorded there no more: another hand wiped the status, say. Nobody watches its
    engine meanwhile, so where it is adopted it has been idle for no time yet."""
    seated = {(s.claim.uid, a.pod.uid) for a in draft.accounts.values() for s in a.sittings}
    pods = {p.uid: p for p in draft.fleet.pods.values()}
    for claim in draft.fleet.claims:
        going = draft.claim_memory(claim).going_to_sleep
        if going is not None and going.pod_uid in pods and (claim.uid, going.pod_uid) not in seated:
            call_off(claim, pods[going.pod_uid], draft)


def continue_sleeps(account: Account, draft: Draft) -> None:
    """Take the next step for each engine of the Pod that is on its way to sleep, or call it off."""
    for sitting in account.sittings:
        going = draft.claim_memory(sitting.claim).going_to_sleep
        if going is not None:
            _continue(account, sitting, going, draft)


def _continue(account: Account, sitting: Sitting, going: GoingToSleep, draft: Draft) -> None:
    pod, claim, engine, now_s = account.pod, sitting.claim, sitting.engine, draft.now.monotonic_s
    if going.pod_uid != pod.uid or not pod.is_running or claim.is_deleting:
        _call_off(account, sitting, draft)
        return
    if pod.reading.snapshot is None:
        if not pod.reading.is_pending:
            _call_off(account, sitting, draft)
        else:
            draft.off_route.add(claim.uid)
        return
    if engine is not None and engine.phase is EnginePhase.SLEEPING:
        return  # it is told with its status, and forgotten once that is written
    was_asked_for = names.wake_annotation(claim.name) in pod.annotations and going.sent_s is None
    came_to_nothing = going.sent_s is not None and pod.busy_since_s is None  # read since it was answered, or was not
    if engine is None or _was_used(engine, going) or not is_serving(sitting) or was_asked_for or came_to_nothing:
        activity.busy_now(account, sitting, draft)
        _call_off(account, sitting, draft)
        return
    if going.sent_s is None and not _is_wanted(account, going, draft):
        _call_off(account, sitting, draft)
        return
    draft.off_route.add(claim.uid)
    if going.sent_s is not None or pod.is_annotating or _is_routed(account, sitting):
        return
    if going.unrouted_s is None:
        going = dataclasses.replace(going, unrouted_s=now_s)
        draft.remember_claim(claim, going_to_sleep=going)
    settled_s = (going.unrouted_s or now_s) + SETTLE_S
    if now_s < settled_s:
        draft.wake_pod_at(pod, settled_s)
        return
    if going.settled_reading is None:
        going = dataclasses.replace(going, settled_reading=pod.reading.sequence)
        draft.remember_claim(claim, going_to_sleep=going)
    was_looked_at = pod.reading.sequence > (going.settled_reading or 0)
    if not was_looked_at:
        draft.look_again(pod, 0.0)
        draft.wake_pod_at(pod, now_s + LOOK_S)  # a reading that says the same wakes no pass
    elif draft.is_free(pod):
        request = wire.SleepRequest(model_name=claim.model, level=wire.SLEEP_LEVEL, operation_id=going.operation_id)
        draft.ask(pod, Sleep(pod_ref(pod), claim.uid, request))
        draft.remember_claim(claim, going_to_sleep=dataclasses.replace(going, sent_s=now_s))


def _is_wanted(account: Account, going: GoingToSleep, draft: Draft) -> bool:
    """Whether what it was chosen for still stands: the policy, whoever room is made for, and nobody woken meanwhile."""
    pod = account.pod
    lifecycle = None if pod.pool is None else pod.pool.lifecycle
    requests = {s.claim.uid: draft.claim_memory(s.claim).wake_request for s in account.sittings}
    if lifecycle is None or any(r is not None and r.sent_s is not None for r in requests.values()):
        return False
    if not going.for_uid:
        return 0 < lifecycle.sleep_after_seconds <= going.idle_s
    hold = draft.card_memory(pod).hold
    is_held = hold is not None and hold.claim_uid == going.for_uid
    request = requests.get(going.for_uid)
    return pod.lends_seats and (is_held or (request is not None and bool(request.waits_for)))


def _was_used(engine: ModelState, going: GoingToSleep) -> bool:
    """Whether a request runs, waits, or has completed since it was chosen; what cannot be read counts as used."""
    if not engine.request_metrics_observed or engine.requests_running + engine.requests_waiting:
        return True
    return engine.request_success_total != going.completions


def _is_routed(account: Account, sitting: Sitting) -> bool:
    text = account.pod.annotations.get(names.route_annotation(sitting.claim.name), "")
    return '"state":"active"' in text


def _call_off(account: Account, sitting: Sitting, draft: Draft) -> None:
    """It stays awake, and its route comes back, since nothing else says otherwise."""
    call_off(sitting.claim, account.pod, draft)
    draft.off_route.discard(sitting.claim.uid)


def call_off(claim: Claim, pod: Pod, draft: Draft) -> None:
    """Forget that the engine was to sleep, and what room was held for whom it was to make it."""
    going, hold = draft.claim_memory(claim).going_to_sleep, draft.card_memory(pod).hold
    if going is not None and hold is not None and hold.claim_uid == going.for_uid:
        draft.remember_card(pod, hold=None)
    draft.remember_claim(claim, going_to_sleep=None)


def asleep_note(sitting: Sitting, pod: str, draft: Draft) -> tuple[Note, ...]:
    """The Events of an engine that was just found asleep: why it sleeps, and what it holds. Told with the status that
    says so, and therefore made anew until that is written."""
    engine, claim = sitting.engine, sitting.claim
    assert engine is not None
    going, held = draft.claim_memory(claim).going_to_sleep, engine.sleeping_footprint_bytes
    holds = f"it holds {figures.size(held)} asleep" if held else "what it holds asleep could not be measured"
    if going is not None and going.waker:
        idle = duration(going.idle_s)
        what = f"model {claim.model} idle for {idle}; put to sleep on pod {pod} to make room for model {going.waker}"
        return (Note(EventType.NORMAL, Reason.SLEPT_TO_MAKE_ROOM, f"{what}; {holds}"),)
    if going is not None:
        what = f"model {claim.model} idle past {going.window_s}s; sleeping engine on pod {pod}"
    else:
        what = f"model {claim.model} is sleeping on pod {pod} and marked non-routable"
    return (Note(EventType.NORMAL, Reason.SLEEPING, f"{what}; {holds}"),)


def watch_sleeper(account: Account, sitting: Sitting, draft: Draft) -> None:
    """Remember what a sleeper holds; in a pool that lends seats say once a sleep that it could not be measured."""
    engine, claim = sitting.engine, sitting.claim
    memory = draft.claim_memory(claim)
    if sitting.instance.phase is InstancePhase.ACTIVE and memory.lent_on:
        draft.remember_claim(claim, lent_on="")
    if engine is None or engine.phase is not EnginePhase.SLEEPING:
        if engine is not None and memory.told_footprint_unknown:
            draft.remember_claim(claim, told_footprint_unknown=False)
        return
    if lent_bytes(sitting, account.pod) is not None and memory.lent_on != account.pod.uid:
        draft.remember_claim(claim, lent_on=account.pod.uid)
    if memory.going_to_sleep is not None and sitting.instance.phase is InstancePhase.SLEEPING:
        draft.remember_claim(claim, going_to_sleep=None)  # it is published, and has been told
    if engine.sleeping_footprint_bytes:
        if memory.asleep_bytes != engine.sleeping_footprint_bytes:
            draft.remember_claim(claim, asleep_bytes=engine.sleeping_footprint_bytes)
    elif account.pod.lends_seats and not memory.told_footprint_unknown:
        draft.remember_claim(claim, told_footprint_unknown=True)
        message = (
            f"model {claim.model} sleeps on pod {account.pod.name} and keeps its wake reserve: "
            "what its engine holds asleep could not be measured"
        )
        draft.note(claim, Note(EventType.WARNING, Reason.SLEEPING_FOOTPRINT_UNKNOWN, message))


def duration(seconds: float) -> str:
    """``2m5s``, as Go prints durations of whole seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    if hours or minutes:
        text += f"{minutes}m"
    return f"{text}{rest}s"


def is_asleep(sitting: Sitting) -> bool:
    """Whether the instance is recorded as sleeping, and its engine does."""
    return sitting.instance.phase is InstancePhase.SLEEPING and sitting.is_asleep
