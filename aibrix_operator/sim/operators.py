"""One process of the operator in virtual time: its caches, its watches, its world, and its part in the election.

The controller, the elector and the terms are the product's own, unchanged; only what they talk to is simulated.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from datetime import datetime, timedelta

from aibrix_operator.api.term import Term
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.lease import Elector, LeaseSettings
from aibrix_operator.cluster.resource import (
    DEPLOYMENTS,
    MODEL_CLAIMS,
    PODS,
    REPLICA_SETS,
    Key,
    Object,
    Resource,
    key_of,
)
from aibrix_operator.cluster.watch import Change
from aibrix_operator.controller.leading import LeadersWriter
from aibrix_operator.modelclaim import reconcile
from aibrix_operator.modelclaim.controller import ClaimFeed, ModelClaimController
from aibrix_operator.modelclaim.parse import slim_deployment, slim_pod, slim_replica_set
from aibrix_operator.modelclaim.world import World
from aibrix_operator.operator.terms import Terms
from aibrix_operator.sim.client import StoreClient
from aibrix_operator.sim.known import Missed
from aibrix_operator.sim.leases import Leases
from aibrix_operator.sim.runtimes import SimulatedRuntimes
from aibrix_operator.sim.sender import SENDER
from aibrix_operator.sim.store import Store, wall

LEASE = LeaseSettings("default", "aibrix-operator")
GRACE_S = 1.0
_SLIM: dict[str, Callable[[Object], Object]] = {
    PODS.plural: slim_pod,
    REPLICA_SETS.plural: slim_replica_set,
    DEPLOYMENTS.plural: slim_deployment,
}


class SimulatedOperator:
    """One process from its start to its end. Another start is another process, which knows nothing of this one."""

    def __init__(
        self, store: Store, runtimes: SimulatedRuntimes, name: str, namespace: str, *, stands_for_election: bool
    ) -> None:
        self.name = name
        self.stands_for_election = stands_for_election
        """False for the only operator of a cluster, which leads without asking."""
        self.clock_off_s = 0.0
        """How far its wall clock is off. Its monotonic clock is the loop's."""
        self.elector: Elector | None = None
        self.is_over = False
        self.is_cut_off = False
        """Nothing of what it sends for the Lease arrives, and nobody says so. ``reconnect`` ends it."""
        self._reconnected_s = float("-inf")
        self.is_deaf = False
        """Its watches are broken and it has not noticed."""
        self.missed: dict[str, Missed] = {}
        """Claim UID → of the claims that ended meanwhile."""
        self._deaf_since_s = 0.0
        self.store = store
        self._runtimes = runtimes
        self._namespace = namespace
        self._caches: dict[str, dict[Key, Object]] = {PODS.plural: {}, REPLICA_SETS.plural: {}, DEPLOYMENTS.plural: {}}
        self._listed_at: dict[str, int] = dict.fromkeys(self._caches, 0)
        """Plural → version of the last list. What a watch still tells from before it is known."""
        self._unwatch: list[Callable[[], None]] = []
        self._election: asyncio.Task[None] | None = None
        self._terms: Terms | None = None
        self._recorder = EventRecorder(store, component="aibrix-operator", instance="sim", now=self.wall)
        self.world: World
        self._context = contextvars.copy_context()
        self._context.run(SENDER.set, self)

    def wall(self) -> datetime:
        """Its wall clock."""
        return wall() + timedelta(seconds=self.clock_off_s)

    @property
    def is_leader(self) -> bool:
        """Whether it may act now."""
        return not self.is_over and (self.elector is None or self.elector.is_leader)

    @property
    def term(self) -> Term | None:
        """The term in which it leads; None when it does not, and without an election."""
        return None if self.elector is None or self.is_over else self.elector.term

    @property
    def reaches_lease(self) -> bool:
        """Whether what it sends for the Lease arrives, and has for so long that no call that was lost holds it up."""
        return not self.is_cut_off and self._loop_s() - self._reconnected_s >= LEASE.deadline_s

    def reconnect(self) -> None:
        """What it sends for the Lease arrives again."""
        self.is_cut_off, self._reconnected_s = False, self._loop_s()

    # --- its life

    def start(self) -> None:
        """Start."""
        self._context.run(self._start_as_candidate if self.stands_for_election else self._start_alone)

    def _start_alone(self) -> None:
        self.world = World(self.store, self._runtimes, self._recorder, self.wall)
        self._fill()
        self.world.is_synced = True
        self.world.passes.start()
        self.world.look(self._namespace)

    def _start_as_candidate(self) -> None:
        self.elector = elector = Elector(
            Leases(self), LEASE, f"{self.name}-{next(self.store.identities)}", clock=self._loop_s
        )
        self.world = World(LeadersWriter(StoreClient(self.store), elector), self._runtimes, self._recorder, self.wall)
        self._fill()
        self._terms = Terms([ModelClaimController(self.world)], self._list_anew_for_a_term, self._watch_over)
        self._election = asyncio.get_running_loop().create_task(
            elector.run(self._terms.begin, self._terms.end), name=f"election of {self.name}"
        )
        self._watch_over(self._election)

    async def stop(self) -> None:
        """End as at SIGTERM: between steps, and the Lease is given back."""
        await self._end(GRACE_S)
        if self.elector is not None:
            await self.elector.release()
        self.is_over = True

    async def kill(self) -> None:
        """End at once: what was not sent by now never is, and the Lease has to expire."""
        self.is_over = True  # it leads no more, whatever its elector's clock says
        await self._end(0.0)

    async def _end(self, grace_s: float) -> None:
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._terms is not None:
            await self._terms.close(grace_s)
        else:
            await self.world.passes.stop(grace_s)
            await self.world.runtime_steps.stop(0.0)
            await self.world.api_steps.stop(0.0)
            for reader in self.world.readers.values():
                reader.stop()
        if self._election is not None:
            self._election.cancel()
            await asyncio.wait([self._election])
        await self._recorder.stop(grace_s)

    @staticmethod
    def _loop_s() -> float:
        return asyncio.get_running_loop().time()

    def _watch_over(self, task: asyncio.Task[None]) -> None:
        """A task that fails would end the process."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error  # to the loop's exception handler

        task.add_done_callback(ended)

    # --- its caches

    def _fill(self) -> None:
        """List everything, then watch."""
        world = self.world
        world.use_pods(self._caches[PODS.plural], self._list_pods_anew)
        world.replica_sets, world.deployments = self._caches[REPLICA_SETS.plural], self._caches[DEPLOYMENTS.plural]
        for resource in (MODEL_CLAIMS, PODS, REPLICA_SETS, DEPLOYMENTS):
            for obj in self.store.of(resource):
                if resource == MODEL_CLAIMS:
                    world.watched_claims[key_of(obj)] = obj
                else:
                    self._caches[resource.plural][key_of(obj)] = _SLIM[resource.plural](obj)
        reconcile.attach(world)
        self._unwatch = [
            self.store.watch(MODEL_CLAIMS, self._claim_changed),
            self.store.watch(PODS, lambda *told: self._cached_changed(PODS, *told)),
            self.store.watch(REPLICA_SETS, lambda *told: self._cached_changed(REPLICA_SETS, *told)),
            self.store.watch(DEPLOYMENTS, lambda *told: self._cached_changed(DEPLOYMENTS, *told)),
        ]
        self._recorder.start()

    def _claim_changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        obj = new if new is not None else old
        if self.is_over or obj is None:
            return
        if not self.is_deaf:
            if new is not None:
                self._is_told_of_end(key_of(new), but=new["metadata"]["uid"])
            reconcile.claim_changed(self.world, change, old, new)
        elif change is Change.DELETED:
            self.missed[obj["metadata"]["uid"]] = Missed(key_of(obj), self._deaf_since_s)

    def _is_told_of_end(self, key: Key, but: str = "") -> None:
        """No claim is there any more, or none ``but`` that one."""
        for uid, missed in self.missed.items():
            if missed.key == key and uid != but:
                missed.until_s = min(missed.until_s, self._loop_s())

    def is_refused(self, resource: Resource, key: Key) -> None:
        """The API server has answered a write of its own that there is no such object."""
        if resource == MODEL_CLAIMS:
            self._is_told_of_end(key)

    def _cached_changed(self, resource: Resource, change: Change, old: Object | None, new: Object | None) -> None:
        """As ``cluster.watch`` keeps its cache: a namesake with another UID is a deletion first."""
        obj = new if new is not None else old
        assert obj is not None
        if self.is_over or self.is_deaf or self._is_listed(resource, obj, is_end=new is None):
            return
        self._keep(resource, key_of(obj), new)

    def _is_listed(self, resource: Resource, obj: Object, *, is_end: bool) -> bool:
        """Whether a list that was made since then has told of it. One that is gone has the version that it had."""
        if is_end:
            known = self._caches[resource.plural].get(key_of(obj))
            return known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]
        return int(obj["metadata"]["resourceVersion"]) <= self._listed_at[resource.plural]

    def _keep(self, resource: Resource, key: Key, new: Object | None) -> None:
        cache, slim = self._caches[resource.plural], _SLIM[resource.plural]
        known = cache.get(key)
        if new is None:
            if known is not None:
                del cache[key]
                self._tell(resource, Change.DELETED, known, None)
            return
        slimmed = slim(new)
        if known is not None and known["metadata"]["uid"] != slimmed["metadata"]["uid"]:
            del cache[key]
            self._tell(resource, Change.DELETED, known, None)
            known = None
        cache[key] = slimmed
        self._tell(resource, Change.ADDED if known is None else Change.MODIFIED, known, slimmed)

    def _tell(self, resource: Resource, change: Change, old: Object | None, new: Object | None) -> None:
        told = reconcile.pod_changed if resource == PODS else reconcile.pool_changed
        told(self.world, change, old, new)

    def go_deaf(self) -> None:
        """Its watches break. What was on its way is lost too."""
        self.is_deaf, self._deaf_since_s = True, self._loop_s() - self.store.watch_delay_s

    def hear_again(self) -> None:
        """Broken watches are noticed, and list anew. Claims that are gone are not missed yet: kopf does not tell."""
        self.is_deaf = False
        if not self.is_over:
            self._context.run(self._list_anew)

    def _list_anew(self) -> None:
        for obj in self.store.of(MODEL_CLAIMS):
            self._claim_changed(Change.MODIFIED, None, obj)
        for resource in (PODS, REPLICA_SETS, DEPLOYMENTS):
            self._list_cached(resource)

    def _list_cached(self, resource: Resource) -> None:
        """As ``cluster.watch`` lists anew."""
        listed = {key_of(obj): obj for obj in self.store.of(resource)}
        for key in [key for key in self._caches[resource.plural] if key not in listed]:
            self._keep(resource, key, None)
        for key, obj in listed.items():
            self._keep(resource, key, obj)
        self._listed_at[resource.plural] = self.store.version

    async def _list_pods_anew(self) -> None:
        self._list_cached(PODS)

    async def _list_anew_for_a_term(self, _: Resource) -> None:
        self._take_list()

    def _take_list(self) -> None:
        """Bring the cache of claims to what the API server has now."""
        ClaimFeed(self.world).listed(self.store.of(MODEL_CLAIMS), self.store.version)
        for missed in self.missed.values():
            missed.until_s = min(missed.until_s, self._loop_s())

    def resync(self) -> None:
        """The list of claims that is made now and then: what it lacks is gone."""
        if not self.is_over:
            self._context.run(self._take_list)
