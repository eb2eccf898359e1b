"""The election against the API server that counts: what it stores, what it validates, and which rights are needed."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import threading
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest

from aibrix_operator.api.term import Term, parse_term
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.lease import Elector, LeaseSettings
from aibrix_operator.cluster.lease_thread import ElectionThread
from aibrix_operator.cluster.resource import LEASES, Object, Resource

pytestmark = pytest.mark.integration

NAME = "the-lease"
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
RIGHTS = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [NAME],
        "verbs": ["get", "update"],
    },
]
"""As docs/architecture.md has it: creation cannot be granted by name."""


class Replica:
    """One elector and what became of it."""

    def __init__(self, cluster: Cluster, namespace: str, identity: str, duration_s: int = 2) -> None:
        settings = LeaseSettings(namespace, NAME, duration_s=duration_s, renew_s=0.3)
        self.elector = Elector(cluster, settings, identity)
        self.terms: list[Term] = []
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.task = asyncio.create_task(self.elector.run(self._begin, self._end))

    def _begin(self, term: Term) -> None:
        self.terms.append(term)
        self.started.set()

    async def _end(self) -> None:
        self.ended.set()

    async def crash(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # as was just asked
            await self.task


Replicas = tuple[Replica, Replica]


@pytest.fixture
async def replicas(request: pytest.FixtureRequest, cluster: Cluster, namespace: str) -> AsyncIterator[Replicas]:
    """A leader and one who waits; a test may say for how many seconds the lease is good."""
    duration_s = getattr(request, "param", 2)
    leader = Replica(cluster, namespace, "first", duration_s)
    await within(20, leader.started)
    other = Replica(cluster, namespace, "second", duration_s)
    yield leader, other
    await leader.crash()
    await other.crash()


async def within(seconds: float, event: asyncio.Event) -> float:
    """How long the event took."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        await event.wait()
    return time.monotonic() - began


async def lease(cluster: Cluster, namespace: str) -> Object:
    return await cluster.get(LEASES, namespace, NAME)


async def test_a_term_is_made_of_what_the_api_server_stored(cluster, namespace, replicas):
    leader, _ = replicas
    stored = await lease(cluster, namespace)
    created = stored["metadata"]["creationTimestamp"]
    assert leader.elector.term == parse_term(f"{created}/0")
    assert stored["spec"]["holderIdentity"] == "first"
    assert stored["spec"]["leaseDurationSeconds"] == 2
    assert stored["spec"]["leaseTransitions"] == 0


@pytest.mark.parametrize("replicas", [60], ids=["a minute long"], indirect=True)
async def test_a_released_lease_is_taken_at_the_next_look(cluster, namespace, replicas):
    leader, other = replicas
    await leader.crash()
    await leader.elector.release()
    assert not leader.elector.is_leader
    assert "holderIdentity" not in (await lease(cluster, namespace))["spec"]
    await within(20, other.started)  # long before it would have expired
    assert other.elector.term > leader.terms[-1]
    assert (await lease(cluster, namespace))["spec"]["leaseTransitions"] == 1


async def test_a_crashed_holder_is_followed_when_its_lease_expires(replicas):
    leader, other = replicas
    await asyncio.wait_for(holds_for(leader, 1.0), 5)
    await leader.crash()
    assert await within(20, other.started) > 2 - 0.3 - 0.3
    assert other.elector.term > leader.terms[-1]
    assert not leader.elector.is_leader


async def holds_for(leader: Replica, seconds: float) -> None:
    """Renewals go on meanwhile."""
    with contextlib.suppress(TimeoutError):  # that nothing ends is what is waited for
        async with asyncio.timeout(seconds):
            await leader.ended.wait()
    assert not leader.ended.is_set()


async def test_a_holder_whose_lease_is_deleted_begins_a_term_of_a_later_lease(cluster, namespace, replicas):
    leader, other = replicas
    await asyncio.wait_for(holds_for(leader, 1.1), 5)  # a creation time has no fractions of a second
    leader.started.clear()
    await cluster.delete(LEASES, namespace, NAME)
    await within(20, leader.started)
    first, second = leader.terms
    assert (second > first, second.transitions) == (True, 0)
    assert not other.terms


async def test_many_who_want_it_at_once_become_one(cluster, namespace):
    crowd = [Replica(cluster, namespace, f"r{n}") for n in range(8)]
    try:
        done, _ = await asyncio.wait(
            [asyncio.create_task(r.started.wait()) for r in crowd], return_when=asyncio.FIRST_COMPLETED, timeout=10
        )
        assert len(done) == 1
        await holds_for(next(r for r in crowd if r.terms), 2.5)
        assert sum(r.elector.is_leader for r in crowd) == 1
        assert sum(len(r.terms) for r in crowd) == 1
    finally:
        for replica in crowd:
            await replica.crash()


async def test_create_get_and_update_are_all_the_rights_that_are_needed(api_server, cluster, namespace):
    await cluster.create(ROLES, namespace, {"metadata": {"name": "elector"}, "rules": RIGHTS})
    binding = {
        "metadata": {"name": "elector"},
        "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "elector"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }
    await cluster.create(ROLE_BINDINGS, namespace, binding)
    account = f"system:serviceaccount:{namespace}:operator"
    kubeconfig = api_server.plane.kubeconfig_for(account, ["system:serviceaccounts"])
    async with await Cluster.connect(kubeconfig) as limited:
        with pytest.raises(errors.Denied):
            await limited.list_all(LEASES, namespace)
        replica = Replica(limited, namespace, "limited")
        await within(10, replica.started)
        await holds_for(replica, 1.5)
        await replica.crash()
        await replica.elector.release()
    assert "holderIdentity" not in (await lease(cluster, namespace))["spec"]


class Threaded:
    """A replica whose election runs beside its loop."""

    def __init__(self, kubeconfig: pathlib.Path, namespace: str) -> None:
        self.election = ElectionThread(
            partial(Cluster.connect, kubeconfig), LeaseSettings(namespace, NAME, duration_s=2, renew_s=0.2), "threaded"
        )
        self.started, self.ended = asyncio.Event(), asyncio.Event()
        self.threads: set[str] = set()
        self.task = asyncio.create_task(self.election.run(self._begin, self._end))

    def _begin(self, term: Term) -> None:
        self.threads.add(threading.current_thread().name)
        self.started.set()

    async def _end(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.ended.set()

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # as was just asked
            await self.task


@pytest.fixture
async def threaded(api_server, namespace: str) -> AsyncIterator[Threaded]:
    replica = Threaded(api_server.kubeconfig, namespace)
    await within(20, replica.started)
    yield replica
    await replica.stop()


async def test_a_loop_that_is_busy_for_longer_than_the_lease_lasts_keeps_the_lead(cluster, namespace, threaded):
    first = threaded.election.term
    assert first is not None
    time.sleep(4)  # noqa: ASYNC251 - what a long pass does to the loop
    assert threaded.election.term == first
    await asyncio.sleep(0)
    assert not threaded.ended.is_set()
    assert (await lease(cluster, namespace))["spec"]["holderIdentity"] == "threaded"


async def test_an_election_that_is_cancelled_gives_the_lease_back_first(cluster, namespace, threaded):
    await threaded.stop()
    assert not threaded.election.is_leader
    assert threaded.election.term is None
    assert "holderIdentity" not in (await lease(cluster, namespace))["spec"]


async def test_a_lost_term_is_told_in_the_callers_loop(cluster, namespace, threaded):
    threaded.started.clear()
    await cluster.delete(LEASES, namespace, NAME)
    await within(20, threaded.ended)
    await within(20, threaded.started)
    assert threaded.threads == {threading.current_thread().name}


async def test_an_election_without_a_cluster_says_so(namespace):
    async def fail() -> Cluster:
        raise ConnectionError("no such cluster")

    with pytest.raises(ConnectionError, match="no such cluster"):
        await ElectionThread(fail, LeaseSettings(namespace, NAME), "x").run(lambda _: None, lambda: asyncio.sleep(0))
