"""An election in virtual time: one Lease as an API server keeps it, and for each replica a network of its own."""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
from dataclasses import dataclass, field

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.lease import Elector, LeaseSettings

SETTINGS = LeaseSettings("default", "aibrix-operator")


class Store:
    """The API server's side: resourceVersions, conflicts, a creation time."""

    def __init__(self):
        self.lease = None
        self.version = 100
        self.creations = 0
        self.history = []
        """(transitions, holder) after each write."""

    def get(self):
        if self.lease is None:
            raise errors.NotFound("no lease", status=404)
        return copy.deepcopy(self.lease)

    def create(self, body):
        if self.lease is not None:
            raise errors.AlreadyExists("lease", status=409)
        self.creations += 1
        metadata = {"uid": f"uid-{self.creations}", "creationTimestamp": f"2026-11-29T08:00:{self.creations:02}Z"}
        return self._keep({**body, "metadata": {**body["metadata"], **metadata}})

    def replace(self, body):
        if self.lease is None:
            raise errors.NotFound("no lease", status=404)
        old, new = self.lease["metadata"], body["metadata"]
        if (old["resourceVersion"], old["uid"]) != (new["resourceVersion"], new["uid"]):
            raise errors.Conflict("changed", status=409)
        return self._keep(body)

    def label(self):
        """Somebody else changes the object, not the holder."""
        if self.lease is not None:
            self._keep({**self.lease, "metadata": {**self.lease["metadata"], "labels": {"seen": str(self.version)}}})

    def delete(self):
        self.lease = None

    @property
    def holder(self):
        return None if self.lease is None else self.lease["spec"].get("holderIdentity")

    def _keep(self, body):
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.lease["spec"]["leaseTransitions"], self.holder))
        return copy.deepcopy(self.lease)


@dataclass
class Network:
    """What happens to one replica's calls. A call that was sent arrives, also when its caller has given up."""

    store: Store
    random: random.Random
    is_cut: bool = False
    """Nothing goes out, and nobody says so."""
    is_away: bool = False
    """The API server refuses connections."""
    lost_share: float = 0.0
    """Of requests, and of answers."""
    slowest_s: float = 0.03
    on_answer: list = field(default_factory=list)
    sent: int = 0

    async def get(self, resource, namespace, name):
        return await self._call(self.store.get)

    async def create(self, resource, namespace, body):
        return await self._call(self.store.create, copy.deepcopy(body))

    async def replace(self, resource, namespace, name, body):
        return await self._call(self.store.replace, copy.deepcopy(body))

    async def _call(self, verb, *args):
        self.sent += 1
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        if self.is_away:
            await asyncio.sleep(0.001)
            raise errors.Unavailable("connection refused")

        def arrive():
            try:
                result, error = verb(*args), None
            except errors.ClusterError as problem:
                result, error = None, problem
            if not self._loses():
                loop.call_later(self._delay_s(), come_back, result, error)

        def come_back(result, error):
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        if not self._loses():
            loop.call_later(self._delay_s(), arrive)
        try:
            return await answer
        finally:
            loop.call_soon(lambda: [look() for look in self.on_answer])

    def _loses(self):
        return self.is_cut or self.random.random() < self.lost_share

    def _delay_s(self):
        return self.random.uniform(0.0005, self.slowest_s)


class Replica:
    """One process after another in one place; each has its own identity and its own idea of the time."""

    def __init__(self, election, name):
        self.election, self.name = election, name
        self.network = Network(election.store, election.random, on_answer=[election.check])
        self.lives = itertools.count(1)
        self.acting = None
        """The term between the callbacks."""
        self.terms = []
        self.elector = None
        self.task = None

    @property
    def is_leader(self):
        return self.elector is not None and self.elector.is_leader

    def start(self):
        chance, loop = self.election.random, asyncio.get_running_loop()
        offset_s, rate = chance.uniform(-1e6, 1e6), chance.uniform(0.99, 1.01)
        identity = f"{self.name}-{next(self.lives)}"
        self.elector = Elector(self.network, SETTINGS, identity, clock=lambda: loop.time() * rate + offset_s)
        self.task = loop.create_task(self.elector.run(self._started, self._stopped))

    def crash(self):
        if self.task is not None:
            self.task.cancel()
        self.elector, self.task, self.acting = None, None, None

    async def end(self):
        """As at SIGTERM."""
        elector, task = self.elector, self.task
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        self.acting = None
        await elector.release()
        if self.task is task:
            self.elector, self.task = None, None

    def _started(self, term):
        assert self.acting is None
        assert not self.terms or term > self.terms[-1], "a new term is a later one"
        self.acting = term
        self.terms.append(term)
        self.election.check()

    async def _stopped(self):
        assert not self.is_leader
        self.acting = None


class Election:
    """Some replicas around one Lease."""

    def __init__(self, replicas, seed=0):
        self.random = random.Random(seed)
        random.seed(seed)  # the electors' jitter
        self.store = Store()
        self.replicas = [Replica(self, f"r{n}") for n in range(replicas)]
        self.story = []

    @property
    def leaders(self):
        return [r for r in self.replicas if r.is_leader]

    def check(self):
        """The law of this house."""
        leaders = self.leaders
        assert len(leaders) <= 1, f"two lead at once: {[r.elector.identity for r in leaders]}"
        terms = [r.elector.term for r in leaders]
        assert all(term is not None for term in terms)

    async def until_one_leads(self, within_s):
        """The leader, and how long that took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not any(r.acting and r.is_leader for r in self.replicas):
            assert loop.time() - began <= within_s, f"nobody leads after {within_s} s"
            await asyncio.sleep(0.01)
        (leader,) = self.leaders
        return leader, loop.time() - began

    async def over(self):
        for replica in self.replicas:
            replica.crash()
        await asyncio.sleep(0)
