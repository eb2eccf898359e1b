"""Look at a cluster from outside of the operator: claims and Pods from the API server, snapshots from the runtimes.

The one module of this package that does I/O. It changes nothing anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import DEPLOYMENTS, MODEL_CLAIMS, PODS, REPLICA_SETS, Object
from aibrix_operator.explain import claim_report
from aibrix_operator.explain.claim_report import ClaimReport
from aibrix_operator.modelclaim.parse import (
    UnreadableClaim,
    parse_claim,
    parse_pod,
    parse_pool,
    slim_deployment,
    slim_pod,
    slim_replica_set,
)
from aibrix_operator.modelclaim.snapshot import Claim, Fleet, Pod, Pool, Reading
from aibrix_operator.runtime_api.client import RuntimeClient, base_url
from aibrix_operator.runtime_api.outcome import Done

READ_S = 5.0
"""For so long a runtime is waited for; a network that cannot reach Pods mostly swallows what is sent there."""
_READS_AT_ONCE = 64


class CannotLook(Exception):
    """The cluster cannot be asked; the text says why. Shown to the user as it is."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    fleets: tuple[Fleet, ...]
    """One for each namespace with claims or warm Pods, by name."""
    unreadable: tuple[str, ...] = ()
    """Claims that the schema cannot have let through, and what is wrong with each."""
    policy_error: str = ""
    """Why pool policies could not be read; sleepers are then charged their whole seat."""

    @property
    def is_reached(self) -> bool:
        """Whether any runtime answered. When none does, it is most likely this machine that is outside."""
        return any(p.reading.snapshot is not None for f in self.fleets for p in f.pods.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be looked at, a sentence each."""
        pods = sum(p.is_running for f in self.fleets for p in f.pods.values())
        unreached = () if self.is_reached or not pods else (f"none of {pods} runtime(s) can be reached from here",)
        policies = (self.policy_error,) if self.policy_error else ()
        return (*unreached, *policies, *(f"claim {text}" for text in self.unreadable))

    def fleet(self, namespace: str) -> Fleet:
        """The fleet of a namespace; an empty one when there is nothing."""
        return next((f for f in self.fleets if f.namespace == namespace), Fleet(namespace, (), {}))


class Looker:
    """Looks at one cluster, again and again if need be."""

    def __init__(self, cluster: Cluster, runtimes: RuntimeClient, read_s: float = READ_S) -> None:
        self._cluster = cluster
        self._runtimes = runtimes
        self._read_s = read_s
        self._turns = asyncio.Semaphore(_READS_AT_ONCE)

    async def look(self, namespace: str | None) -> Look:
        """All claims and warm Pods of ``namespace`` (None: of all), with a fresh reading of each runtime.

        CannotLook when the API server does not answer or refuses.
        """
        try:
            bodies, _ = await self._cluster.list_all(MODEL_CLAIMS, namespace)
            claims, unreadable = _parse(bodies)
            pods = await self._pods(namespace, claims)
        except errors.ClusterError as error:
            raise CannotLook(str(error)) from error
        try:
            pools, policy_error = await self._pools(namespace), ""
        except errors.ClusterError as error:
            pools = {}
            policy_error = f"pool policies cannot be read, so that sleepers look as if they lent nothing: {error}"
        pods = [dataclasses.replace(p, pool=pools.get(p.owner_uid)) for p in pods]
        read = await asyncio.gather(*(self._read(pod) for pod in pods))
        by_namespace: dict[str, tuple[list[Claim], dict[str, Pod]]] = defaultdict(lambda: ([], {}))
        for claim in claims:
            by_namespace[claim.namespace][0].append(claim)
        for pod in read:
            by_namespace[pod.namespace][1][pod.name] = pod
        fleets = [
            Fleet(name, tuple(sorted(found[0], key=lambda c: c.age_key)), found[1])
            for name, found in sorted(by_namespace.items())
        ]
        return Look(tuple(fleets), unreadable, policy_error)

    async def _pods(self, namespace: str | None, claims: list[Claim]) -> list[Pod]:
        """Pods with the pool label, and those that lost it and still have an instance."""
        bodies, _ = await self._cluster.list_all(PODS, namespace, label_selector=names.POOL_LABEL)
        pods = {(p.namespace, p.name): p for p in (parse_pod(slim_pod(body)) for body in bodies)}
        seated = {(c.namespace, i.pod) for c in claims for i in c.status.instances}
        for where, name in sorted(seated - pods.keys()):
            with contextlib.suppress(errors.NotFound):  # recorded there, and gone
                pods[where, name] = parse_pod(slim_pod(await self._cluster.get(PODS, where, name)))
        return list(pods.values())

    async def _pools(self, namespace: str | None) -> dict[str, Pool]:
        """UID of a ReplicaSet → the pool of the Deployment that controls it."""
        # A ReplicaSet carries the labels of its Pods; a Deployment need not.
        replica_sets, _ = await self._cluster.list_all(REPLICA_SETS, namespace, label_selector=names.POOL_LABEL)
        owners = {r["metadata"]["uid"]: r["owner"] for r in map(slim_replica_set, replica_sets) if r["owner"]}
        if not owners:
            return {}
        deployments, _ = await self._cluster.list_all(DEPLOYMENTS, namespace)
        pools = {d["metadata"]["uid"]: parse_pool(d) for d in map(slim_deployment, deployments)}
        return {uid: pools[owner] for uid, owner in owners.items() if owner in pools}

    async def _read(self, pod: Pod) -> Pod:
        if not pod.is_running:
            return pod
        try:
            # The turn is taken outside of the timeout: a Pod does not fall silent because others do.
            async with self._turns, asyncio.timeout(self._read_s):
                outcome = await self._runtimes.snapshot(base_url(pod.ip))
        except TimeoutError:
            reading = Reading(1, error=f"runtime of {pod.name} did not answer within {self._read_s:g} s")
        else:
            reading = Reading(1, outcome.answer) if isinstance(outcome, Done) else Reading(1, error=outcome.message)
        return dataclasses.replace(pod, reading=reading)


@contextlib.asynccontextmanager
async def connect(kubeconfig: Path | None, runtime_token: str | None, read_s: float = READ_S) -> AsyncIterator[Looker]:
    """A looker for a cluster, found as ``connect_cluster`` says."""
    async with (
        connect_cluster(kubeconfig) as cluster,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        yield Looker(cluster, RuntimeClient(session, runtime_token), read_s)


@contextlib.asynccontextmanager
async def connect_cluster(kubeconfig: Path | None) -> AsyncIterator[Cluster]:
    """The cluster of ``kubeconfig``, else of ``KUBECONFIG``, else of ``~/.kube/config``, else the one that this process
    runs in. CannotLook when none of them describes a cluster."""
    path = kubeconfig or default_kubeconfig()
    where = f"in {path}" if path else "here: neither KUBECONFIG nor ~/.kube/config is there, and this is no Pod"
    try:
        cluster = await Cluster.connect(path)
    except Exception as error:  # the client's own errors, and whatever reading the file or an exec plugin brings
        raise CannotLook(f"no cluster to look at {where}: {error}") from error
    async with cluster:
        yield cluster


async def explain(kubeconfig: Path | None, runtime_token: str | None, namespace: str, name: str) -> ClaimReport:
    """Look at the claim's namespace once and report on the claim. CannotLook when it is not there."""
    async with connect(kubeconfig, runtime_token) as looker:
        return report_on(await looker.look(namespace), namespace, name)


def report_on(look: Look, namespace: str, name: str) -> ClaimReport:
    """The report of one claim of a look. CannotLook when it is not there, or cannot be read."""
    fleet = look.fleet(namespace)
    claim = next((c for c in fleet.claims if c.name == name), None)
    if claim is None:
        key = names.claim_key(namespace, name)
        wrong = [text for text in look.unreadable if text.startswith(f"{key}: ")]
        raise CannotLook(f"claim {wrong[0]}" if wrong else f"there is no ModelClaim {key}")
    return claim_report.report(fleet, claim, is_reached=look.is_reached, warning=look.policy_error)


def default_kubeconfig() -> Path | None:
    """Where kubectl would look; None leaves the cluster that this process runs in."""
    named = os.environ.get("KUBECONFIG")
    if named:
        if not any(Path(name).is_file() for name in named.split(os.pathsep)):
            raise CannotLook(f"KUBECONFIG is {named}, and there is no such file")
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if usual.is_file() else None


def _parse(bodies: list[Object]) -> tuple[list[Claim], tuple[str, ...]]:
    claims, unreadable = [], []
    for body in bodies:
        try:
            claims.append(parse_claim(body))
        except UnreadableClaim as error:
            name = names.claim_key(body["metadata"].get("namespace", ""), body["metadata"].get("name", "?"))
            unreadable.append(f"{name}: {error}")
    return claims, tuple(unreadable)
