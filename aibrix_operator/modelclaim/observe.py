"""Build the snapshot of one namespace from what watches and readers have brought. Waits for nothing, calls nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import Object
from aibrix_operator.modelclaim import scopes
from aibrix_operator.modelclaim.parse import UnreadableClaim
from aibrix_operator.modelclaim.readers import Reader
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod, Pool
from aibrix_operator.modelclaim.world import World

Complain = Callable[[dict[str, object], str], None]


def observe(namespace: str, world: World, complain: Complain) -> Fleet:
    """All claims and Pods of ``namespace``, with readings and with what is under way.

    ``complain`` gets each claim that cannot be read, once per version.
    """
    claims = _claims(_bodies(namespace, world), world, complain)
    seated = {i.pod for c in claims for i in (*c.status.instances, *c.writing_instances)}
    pods: dict[str, Pod] = {}
    pools = _pools(namespace, world)
    for slim in world.pods.values():
        metadata = slim["metadata"]
        if metadata.get("namespace") != namespace:
            continue
        if names.POOL_LABEL in metadata["labels"] or metadata["annotations"] or metadata["name"] in seated:
            pods[metadata["name"]] = _as_it_is(world.pod_of(slim), pools, namespace, world)
    finished = tuple(world.finished.pop(namespace, ()))
    return Fleet(namespace, _by_age(claims), pods, finished)


def observe_some(namespace: str, world: World, names_of_pods: Collection[str], complain: Complain) -> Fleet | None:
    """Some Pods of ``namespace`` and the claims on them, as the last whole pass has seated them.

    None when they cannot be looked at alone: the whole is to be observed instead.
    """
    seated = world.seated.get(namespace)
    if seated is None or any(f.step.pod.name not in names_of_pods for f in world.finished.get(namespace, ())):
        return None
    # Sorted: steps are planned in this order, and a set's is another in each process.
    slims = {name: world.pods.get((namespace, name)) for name in sorted(names_of_pods)}
    bodies = [world.claims.get(key) for name in slims for key in seated.get(name, ())]
    if None in bodies or None in slims.values():
        return None
    claims = _claims([body for body in bodies if body is not None], world, complain)
    if len(claims) < len(bodies):
        return None
    for claim in claims:
        recorded = (*claim.status.instances, *claim.writing_instances)
        if claim.is_deleting or not scopes.is_seated(recorded) or any(i.pod not in names_of_pods for i in recorded):
            return None
    pools = _pools(namespace, world)
    pods = {name: _as_it_is(world.pod_of(slim), pools, namespace, world) for name, slim in slims.items() if slim}
    finished = tuple(world.finished.pop(namespace, ()))
    return Fleet(namespace, _by_age(claims), pods, finished, is_whole=False)


def _by_age(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    return tuple(sorted(claims, key=lambda c: c.age_key))


def _pools(namespace: str, world: World) -> dict[str, Pool]:
    """UID of a ReplicaSet → the pool of the Deployment that controls it."""
    deployments = {d["metadata"]["uid"]: d for (ns, _), d in world.deployments.items() if ns == namespace}
    return {
        r["metadata"]["uid"]: world.pool_of(deployments[r["owner"]])
        for (ns, _), r in world.replica_sets.items()
        if ns == namespace and r["owner"] in deployments
    }


def _bodies(namespace: str, world: World) -> Iterator[Object]:
    return (body for body in world.claims.values() if body["metadata"].get("namespace") == namespace)


def _claims(bodies: Iterable[Object], world: World, complain: Complain) -> list[Claim]:
    claims = []
    for body in bodies:
        try:
            claim = world.claim_of(body)
        except UnreadableClaim as error:
            complain(body, str(error))
            continue
        if world.api_steps.in_flight(("claim", claim.uid)) is not None:
            writing = world.writing.get(claim.uid, claim.status.instances)
            claim = dataclasses.replace(claim, is_writing=True, writing_instances=writing)
        if world.is_retrying(("claim", claim.uid)):
            claim = dataclasses.replace(claim, is_retrying=True)
        unsure = world.unsure.get(claim.uid)
        if unsure is not None and unsure.resource_version == claim.resource_version:
            claim = dataclasses.replace(claim, unsure_instances=unsure.instances)
        elif unsure is not None:
            del world.unsure[claim.uid]
        claims.append(claim)
    return claims


def _as_it_is(pod: Pod, pools: Mapping[str, Pool], namespace: str, world: World) -> Pod:
    """The Pod with its pool, where that is known, and its last reading; its reader is started, or replaced when its
    address changed."""
    reader = world.readers.get(pod.uid)
    if reader is not None and (not pod.is_running or reader.ip != pod.ip):
        world.readers.pop(pod.uid).stop()
        reader = None
    if reader is None and pod.is_running:
        reader = Reader(pod.ip, world.runtimes, partial(world.look, namespace, (pod.name,)))
        world.readers[pod.uid] = reader
        reader.start()
    pool, reading = pools.get(pod.owner_uid), pod.reading if reader is None else reader.reading
    busy_since_s = world.runtime_steps.in_flight(("runtime", pod.uid))
    is_annotating = world.api_steps.in_flight(("annotate", pod.uid)) is not None
    before = world.observed_pods.get(pod.uid)
    if (
        before is not None
        and before[0] is pod
        and (before[1].pool is pool and before[1].reading is reading)
        and (before[1].busy_since_s, before[1].is_annotating) == (busy_since_s, is_annotating)
    ):
        return before[1]
    now = dataclasses.replace(pod, pool=pool, reading=reading, busy_since_s=busy_since_s, is_annotating=is_annotating)
    world.observed_pods[pod.uid] = pod, now
    return now
