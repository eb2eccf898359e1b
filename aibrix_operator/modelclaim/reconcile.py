"""One pass, the same for every trigger: observe, decide, act."""

from __future__ import annotations

import logging
import time
from functools import partial

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import Object, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.cluster.work_queue import WorkQueue
from aibrix_operator.modelclaim import act as acting
from aibrix_operator.modelclaim import auditing, scopes
from aibrix_operator.modelclaim import observe as observing
from aibrix_operator.modelclaim.attention import Scope
from aibrix_operator.modelclaim.decide import decide
from aibrix_operator.modelclaim.metrics import Metrics
from aibrix_operator.modelclaim.snapshot import Fleet, Moment
from aibrix_operator.modelclaim.steps import ClaimRef, EventType, Note
from aibrix_operator.modelclaim.world import World

log = logging.getLogger(__name__)

AUDIT_S = 10.0
REST = 1.0
"""A namespace rests as long as its last pass took: what happens meanwhile is one pass, not many, and the steps of
the last plan get the event loop."""


def attach(world: World) -> None:
    """Give the world its queue of passes, one per namespace at a time, and its metrics."""
    world.metrics = Metrics(world)
    world.passes = WorkQueue("modelclaim", partial(reconcile, world=world), workers=1, rest=REST)


async def reconcile(namespace: str, world: World) -> None:
    """One pass over ``namespace``. It awaits nothing, so that no event comes between its looking and its asking."""
    if not world.is_synced:
        return
    now = Moment(world.wall(), world.monotonic_s())
    scope = world.attention[namespace].take(now.monotonic_s)
    began_s = time.perf_counter()
    try:
        if scope is None or scope:
            is_whole = _pass(namespace, scope, now, world)
            world.metrics.pass_seconds.labels("whole" if is_whole else "some").observe(time.perf_counter() - began_s)
    except Exception:
        world.attention[namespace].mark(None)  # whatever it has not done, the next one does
        raise
    next_s = world.attention[namespace].next_s
    if next_s is not None:  # of several times the queue keeps the earliest alone
        world.passes.wake_after(namespace, max(next_s - world.monotonic_s(), acting.SHORTEST_WAIT_S))


def _pass(namespace: str, scope: Scope, now: Moment, world: World) -> bool:
    """Look at ``scope`` if that can be judged alone, and else at everything. Returns whether it was everything."""
    complain = partial(_complain, world)
    if scope is not None:
        some = observing.observe_some(namespace, world, scope, complain)
        if some is not None:
            plan, memory = decide(some, world.memory[namespace], now)
            if not plan.wants_whole:
                world.memory[namespace] = memory
                _audit(some, now, world)
                acting.act(namespace, plan, world, scope)
                return False
            world.finished[namespace] += some.finished
    fleet = observing.observe(namespace, world, complain)
    if now.monotonic_s >= world.audit_due_s.get(namespace, 0.0):
        world.audit_due_s[namespace] = now.monotonic_s + AUDIT_S
        _audit(fleet, now, world)
    plan, memory = decide(fleet, world.memory[namespace], now)
    world.memory[namespace] = memory
    seated = scopes.seating(fleet, memory, now.monotonic_s)
    if seated is None:
        world.seated.pop(namespace, None)
    else:
        world.seated[namespace] = seated
    acting.act(namespace, plan, world)
    world.whole_pass_s[namespace] = world.monotonic_s() - now.monotonic_s
    return True


def _audit(fleet: Fleet, now: Moment, world: World) -> None:
    """Check the ledger's laws, and count what stays broken: a count that is not 0 is a fault of ours.

    Nothing changes on a card without a pass that looks at it, so in between only what is broken needs another look.
    """
    suspects, now_s = world.audit_suspects[fleet.namespace], now.monotonic_s
    broken = auditing.broken_laws(fleet)
    for pod in (suspects if fleet.is_whole else fleet.pods).keys() - broken.keys():
        suspects.pop(pod, None)
    for pod, sentence in broken.items():
        if now_s - suspects.setdefault(pod, now_s) >= AUDIT_S:
            suspects[pod] = now_s
            world.metrics.violations.labels(fleet.namespace).inc()
            log.error("a law of the ledger is broken in %s: %s", fleet.namespace, sentence)
        world.look_after(fleet.namespace, AUDIT_S, frozenset({pod}))


def _complain(world: World, body: dict[str, object], error: str) -> None:
    """An Event on a claim that cannot be read, once per version: it takes no part in anything until it is mended."""
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    key = (metadata.get("namespace", ""), metadata.get("name", ""))
    version = metadata.get("resourceVersion", "")
    if world.unreadable.get(key) == version:
        return
    world.unreadable[key] = version
    claim = ClaimRef(*key, metadata.get("uid", ""), version)
    message = f"the claim cannot be read and is left alone: {error}; apply it again as the schema has it"
    acting.raise_event(claim, Note(EventType.WARNING, "InvalidClaim", message), world)


def claim_changed(world: World, change: Change, old: Object | None, new: Object | None) -> None:
    """The API server told of a claim: keep it, and look at its namespace again."""
    obj = new if new is not None else old
    if obj is None:
        return
    key, uid = key_of(obj), obj["metadata"]["uid"]
    known = world.watched_claims.get(key)
    if change is Change.DELETED:
        if known is not None and known["metadata"]["uid"] == uid:
            del world.watched_claims[key]
        world.forget_claim(uid)
        world.unreadable.pop(key, None)
    elif known is None or known["metadata"]["uid"] != uid or not is_older(obj, known):
        world.watched_claims[key] = obj
    is_told_by_its_step = change is Change.MODIFIED and _is_of_our_write(obj, world)
    world.claims.observed(change, old, new)
    if is_told_by_its_step:
        return
    world.look(key[0], None if new is None else scopes.concerned_by_claim(known, new))


def _is_of_our_write(obj: Object, world: World) -> bool:
    """Whether it is what a write of ours made of it, or one is under way: the end of that write has a pass look again.

    Somebody else's change meanwhile makes the write a conflict, whose end looks again too.
    """
    return world.api_steps.in_flight(("claim", obj["metadata"]["uid"])) is not None or world.claims.has_written(obj)


def is_older(one: Object, other: Object) -> bool:
    """Whether ``one`` is an earlier version; False where versions cannot be compared."""
    first, second = one["metadata"]["resourceVersion"], other["metadata"]["resourceVersion"]
    return first.isdecimal() and second.isdecimal() and int(first) < int(second)


def pod_changed(world: World, change: Change, old: Object | None, new: Object | None) -> None:
    """The watch told of a Pod: look at its namespace again if a claim can be concerned."""
    world.pods.observed(change, old, new)
    obj = new if new is not None else old
    if obj is None:
        return
    metadata = obj["metadata"]
    if new is None:
        world.forget_pod(metadata["uid"])
    if names.POOL_LABEL in metadata["labels"] or metadata["annotations"] or metadata["uid"] in world.readers:
        is_annotated = old is not None and new is not None and _without_annotations(old) == _without_annotations(new)
        world.look(metadata.get("namespace", ""), (metadata["name"],) if is_annotated else None)


def _without_annotations(slim: Object) -> Object:
    left_out = ("annotations", "resourceVersion")
    return {**slim, "metadata": {k: v for k, v in slim["metadata"].items() if k not in left_out}}


def pool_changed(world: World, change: Change, old: Object | None, new: Object | None) -> None:
    """The watch told of a Deployment or ReplicaSet: look again where a pool's policy can be another now."""
    obj = new if new is not None else old
    if (obj is not None and change is not Change.MODIFIED) or _policy(old) != _policy(new):
        assert obj is not None
        world.look(obj["metadata"].get("namespace", ""))


def _policy(slim: Object | None) -> str | None:
    """The pool policy of a slimmed Deployment; None for everything else."""
    policy = None if slim is None else slim["metadata"].get("annotations", {}).get(names.POOL_POLICY_ANNOTATION)
    return None if policy is None else str(policy)
