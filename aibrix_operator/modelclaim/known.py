"""What the caches and readers know now, for those who look and decide nothing: the page and the gauges.

Other than ``observe`` it starts no reader and takes nothing away. Waits for nothing, calls nobody.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

from aibrix_operator.api import names
from aibrix_operator.modelclaim.parse import UnreadableClaim
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod, Pool
from aibrix_operator.modelclaim.world import World


def claims(world: World) -> tuple[list[Claim], tuple[str, ...]]:
    """All claims, and what is wrong with each that the schema cannot have let through."""
    readable: list[Claim] = []
    unreadable: list[str] = []
    for body in world.claims.values():
        try:
            readable.append(world.claim_of(body))
        except UnreadableClaim as error:
            key = names.claim_key(body["metadata"].get("namespace", ""), body["metadata"].get("name", "?"))
            unreadable.append(f"{key}: {error}")
    return readable, tuple(sorted(unreadable))


def pods(world: World, seated_claims: Iterable[Claim]) -> list[Pod]:
    """Pods with the pool label, and those that lost it and still have an instance. Each has its pool, and the last
    reading where a reader reads it."""
    seated = {(c.namespace, i.pod) for c in seated_claims for i in c.status.instances}
    pools = _pools(world)
    found = []
    for slim in world.pods.values():
        metadata = slim["metadata"]
        if names.POOL_LABEL in metadata["labels"] or (metadata.get("namespace", ""), metadata["name"]) in seated:
            pod = world.pod_of(slim)
            reader = world.readers.get(pod.uid)
            reading = pod.reading if reader is None else reader.reading
            found.append(dataclasses.replace(pod, pool=pools.get(pod.owner_uid), reading=reading))
    return found


def fleets(of_claims: Iterable[Claim], of_pods: Iterable[Pod]) -> tuple[Fleet, ...]:
    """One for each namespace with claims or warm Pods, by name."""
    found: dict[str, tuple[list[Claim], dict[str, Pod]]] = defaultdict(lambda: ([], {}))
    for claim in of_claims:
        found[claim.namespace][0].append(claim)
    for pod in of_pods:
        found[pod.namespace][1][pod.name] = pod
    return tuple(
        Fleet(namespace, tuple(sorted(of[0], key=lambda c: c.age_key)), of[1])
        for namespace, of in sorted(found.items())
    )


def pool_name(world: World, namespace: str, pod: str) -> str:
    """The Deployment that the Pod is one of; empty where that is not known (any more)."""
    slim = world.pods.get((namespace, pod))
    pool = None if slim is None else _pools(world).get(world.pod_of(slim).owner_uid)
    return "" if pool is None else pool.deployment


def _pools(world: World) -> dict[str, Pool]:
    """UID of a ReplicaSet → the pool of the Deployment that controls it."""
    deployments = {d["metadata"]["uid"]: d for d in world.deployments.values()}
    return {
        r["metadata"]["uid"]: world.pool_of(deployments[r["owner"]])
        for r in world.replica_sets.values()
        if r["owner"] in deployments
    }
