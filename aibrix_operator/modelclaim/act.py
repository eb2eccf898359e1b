"""Hand the steps of a plan to their lanes. Waits for none of them; what ends one wakes the next pass."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Literal, cast

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import MODELCLAIM
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.events import ObjectReference
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, Object
from aibrix_operator.cluster.step_queue import Finished as Ended
from aibrix_operator.modelclaim import scopes
from aibrix_operator.modelclaim.attention import Scope
from aibrix_operator.modelclaim.snapshot import Finished, Result
from aibrix_operator.modelclaim.steps import (
    Activate,
    Annotate,
    ClaimRef,
    Deactivate,
    Note,
    Plan,
    PoolRef,
    RuntimeStep,
    SetFinalizer,
    SetLimits,
    Sleep,
    Step,
    Wake,
    WriteStatus,
)
from aibrix_operator.modelclaim.world import Lane, World
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Done, NotSent, Unknown

log = logging.getLogger(__name__)

SHORTEST_WAIT_S = 0.001


def act(namespace: str, plan: Plan, world: World, scope: Scope = None) -> None:
    """Start every step whose lane is free, raise the plan's Events, and set what is due later for ``scope``."""
    for step in plan.steps:
        _submit(namespace, step, world)
    for claim, note in plan.notes:
        raise_event(claim, note, world)
    for uid, seconds in plan.look_again_s.items():
        reader = world.readers.get(uid)
        if reader is not None:
            reader.set_pace(seconds)
    # A timer may fire a trifle before its time; a pass that finds the time not yet come must not loop.
    if plan.wake_after_s is not None:
        world.look_after(namespace, max(plan.wake_after_s, SHORTEST_WAIT_S), scope)
    for pod, seconds in plan.wake_pods_after_s.items():
        world.look_after(namespace, max(seconds, SHORTEST_WAIT_S), frozenset({pod}))


def raise_event(about: ClaimRef | PoolRef, note: Note, world: World) -> None:
    """An Event on a claim, or on a pool's Deployment."""
    version, kind_of = f"{names.MODEL_GROUP}/{names.MODEL_VERSION}", MODELCLAIM.kind
    if isinstance(about, PoolRef):
        version, kind_of = DEPLOYMENTS.api_version, "Deployment"
    regarding = ObjectReference(version, kind_of, about.namespace, about.name, about.uid)
    kind = cast(Literal["Normal", "Warning"], str(note.type))
    world.recorder.emit(regarding, kind, note.reason, note.message, "Reconcile")


def _submit(namespace: str, step: Step, world: World) -> None:
    match step:
        case WriteStatus():
            lane: Lane = ("claim", step.claim.uid)
            run = partial(_write_status, step, world)
        case SetFinalizer():
            lane, run = ("claim", step.claim.uid), partial(_set_finalizer, step, world)
        case Annotate():
            lane, run = ("annotate", step.pod.uid), partial(_annotate, step, world)
        case SetLimits() | Activate() | Deactivate() | Sleep() | Wake():
            _submit_runtime_step(namespace, step, world)
            return
    cooling_s = world.cooling_s(lane)
    if cooling_s > 0:
        # The pass that this wait was to end in may have come early, for another reason, and is not due again.
        world.look_after(namespace, cooling_s)
        return
    started = world.api_steps.submit(lane, run, partial(_api_step_ended, namespace, step, world))
    if started and isinstance(step, WriteStatus):
        world.writing[step.claim.uid] = step.status.instances


def _api_step_ended(namespace: str, step: Step, world: World, ended: Ended[Lane]) -> None:
    """Sort the end of a write: a conflict looks again, anything else that failed is tried again later."""
    if isinstance(step, WriteStatus):
        world.writing.pop(step.claim.uid, None)
    error = ended.error
    if error is None:
        world.cooling.pop(ended.key, None)
        if isinstance(step, WriteStatus):
            world.unsure.pop(step.claim.uid, None)
        if isinstance(step, WriteStatus) and not step.is_record:
            world.look_leisurely(namespace, _concerned(step))
        else:
            world.look(namespace, _concerned(step))
        return
    if isinstance(error, errors.Unavailable | asyncio.CancelledError) and isinstance(step, WriteStatus):
        world.may_have_written(step.claim.uid, step.claim.resource_version, step.status.instances)
    if isinstance(error, asyncio.CancelledError):
        return
    if isinstance(error, errors.NotFound) and isinstance(step, WriteStatus | SetFinalizer):
        _drop_claim(step.claim, world)
        world.look(namespace)
        return
    wait_s = world.cool(ended.key)
    level = logging.DEBUG if isinstance(error, errors.Conflict | errors.NotFound) else logging.WARNING
    if not isinstance(error, errors.ClusterError):
        log.error("a step of %s failed", ended.key, exc_info=error)
    else:
        log.log(level, "%s; looking again in %.1f s", error, wait_s)
    world.look_after(namespace, wait_s)


def _concerned(step: Step) -> Iterable[str] | None:
    """The Pods that a write which worked can matter to; None where it may be any."""
    match step:
        case Annotate(pod=pod):
            return {pod.name}
        case WriteStatus(status=status) if scopes.is_seated(status.instances):
            return {i.pod for i in status.instances}
        case _:
            return None


def _drop_claim(claim: ClaimRef, world: World) -> None:
    """The API server says that the claim is gone, whatever the watch has missed."""
    key = (claim.namespace, claim.name)
    world.claims.ended(key, claim.uid)  # what we wrote of it last goes too, or the next pass would find it again
    known = world.watched_claims.get(key)
    if known is not None and known["metadata"]["uid"] == claim.uid:
        del world.watched_claims[key]
        world.forget_claim(claim.uid)


async def _write_status(step: WriteStatus, world: World) -> None:
    claim, patch = step.claim, step.status.to_patch()
    answer = await world.cluster.patch_status(MODEL_CLAIMS, claim.namespace, claim.name, patch, claim.resource_version)
    world.claims.wrote(answer)
    for note in step.notes:
        raise_event(claim, note, world)


async def _set_finalizer(step: SetFinalizer, world: World) -> None:
    body = world.claims.get((step.claim.namespace, step.claim.name))
    if body is None or body["metadata"]["uid"] != step.claim.uid:
        return
    change: Callable[..., Awaitable[Object]]
    change = world.cluster.add_finalizer if step.present else world.cluster.remove_finalizer
    world.claims.wrote(await change(MODEL_CLAIMS, body, names.CLAIM_FINALIZER))


async def _annotate(step: Annotate, world: World) -> None:
    pod = step.pod
    # Not found: the watch will say so, and until then its lane cools, or each pass would ask again at once.
    world.pods.wrote(await world.cluster.patch_annotations(PODS, pod.namespace, pod.name, step.values, uid=pod.uid))


def _submit_runtime_step(namespace: str, step: RuntimeStep, world: World) -> None:
    lane = ("runtime", step.pod.uid)
    world.runtime_steps.submit(
        lane, partial(_call_runtime, step, world), partial(_runtime_step_ended, namespace, step, world)
    )


def _runtime_step_ended(namespace: str, step: RuntimeStep, world: World, ended: Ended[Lane]) -> None:
    """Tell the next pass, and read the runtime anew: what was read before the step proves nothing about it."""
    if isinstance(ended.error, asyncio.CancelledError):
        return
    result: Any = ended.value
    if ended.error is not None:
        log.error("a step of %s failed", ended.key, exc_info=ended.error)
        result = Unknown(f"the call failed: {ended.error}")
    finished = Finished(step, result)
    world.finished[namespace].append(finished)
    world.metrics.step_ended(namespace, finished)
    reader = world.readers.get(step.pod.uid)
    if reader is not None:
        reader.discard()
    world.look(namespace, {step.pod.name})


async def _call_runtime(step: RuntimeStep, world: World) -> Result:
    reader = world.readers.get(step.pod.uid)
    if reader is None or reader.ip != step.pod.ip:
        # The address may be another Pod's by now.
        return NotSent(f"pod {step.pod.name} has left the address {step.pod.ip}")
    base = base_url(step.pod.ip)
    match step:
        case Activate():
            return await world.runtimes.activate(base, step.request)
        case Deactivate():
            return await world.runtimes.deactivate(base, step.request)
        case Sleep():
            return await world.runtimes.sleep(base, step.request)
        case Wake():
            return await world.runtimes.wake(base, step.request)
        case SetLimits():
            return await _set_limits(base, step, world)


async def _set_limits(base: str, step: SetLimits, world: World) -> Result:
    """All of them at once: one that waited for a slow answer to another would be sent on what was known back then, when
    its claim may have declared a smaller floor. The first that was not done tells for all."""
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(world.runtimes.set_kv_limit(base, write)) for write in step.writes]
    results: list[Result] = [call.result() for call in calls]
    return next((r for r in results if not isinstance(r, Done)), results[0])
