"""A cluster in memory under the virtual clock for kinds with a pass per object: the frame and the kinds unchanged.

async with KeyedCluster(host, operators=2) as cluster:
    cluster.store.put(WIDGETS, {...})
    await cluster.run(60)
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TypeAlias

from aibrix_operator.api.term import Term, parse_term
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.lease import Elector, LeaseSettings
from aibrix_operator.cluster.resource import Object, Resource, key_of
from aibrix_operator.cluster.watch import Change
from aibrix_operator.controller.cache import Cache
from aibrix_operator.controller.controller import Controller
from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.leading import LeadersWriter
from aibrix_operator.operator.terms import Terms
from aibrix_operator.sim.client import StoreClient, selects
from aibrix_operator.sim.garbage import GarbageCollector
from aibrix_operator.sim.leases import Leases
from aibrix_operator.sim.sender import SENDER
from aibrix_operator.sim.store import Store, now_s, wall
from aibrix_operator.sim.world import LawBroken

LEASE = LeaseSettings("default", "aibrix-operator")
GRACE_S = 1.0
_ALONE = parse_term("2026-01-01T00:00:00Z/1")

Host: TypeAlias = Callable[[Hub], Sequence[Controller]]
"""Makes the controllers of one process."""


class KeyedOperator:
    """One process from its start to its end. Another start is another process, which knows nothing of this one."""

    def __init__(self, store: Store, host: Host, name: str, *, stands_for_election: bool) -> None:
        self.store = store
        self.name = name
        self.stands_for_election = stands_for_election
        self.elector: Elector | None = None
        self.is_over = False
        self.is_cut_off = False
        """Nothing of what it sends for the Lease arrives, and nobody says so."""
        self.is_deaf = False
        """Its watches are broken and it has not noticed."""
        self.clock_off_s = 0.0
        self._election: asyncio.Task[None] | None = None
        self._unwatch: list[Callable[[], None]] = []
        self._recorder = EventRecorder(store, component="aibrix-operator", instance="sim", now=self.wall)
        client = StoreClient(store)
        if stands_for_election:
            identity = f"{name}-{next(store.identities)}"
            self.elector = Elector(Leases(self), LEASE, identity, clock=now_s)
        writer = client if self.elector is None else LeadersWriter(client, self.elector)
        self.hub = Hub(writer, client, self._recorder, wall=self.wall)
        self.controllers = host(self.hub)
        self._terms = Terms(self.controllers, self._list_anew, _raise_what_fails)
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

    def start(self) -> None:
        """List, watch, and stand for election or lead at once."""
        self._context.run(self._start)

    def _start(self) -> None:
        self._recorder.start()
        for cache in self.hub.caches.all:
            self._fill(cache)
            self._unwatch.append(self.store.watch(cache.selection.resource, partial(self._heard, cache)))
        if self.elector is None:
            self._terms.begin(_ALONE)
            return
        election = self.elector.run(self._terms.begin, self._terms.end)
        self._election = asyncio.get_running_loop().create_task(election, name=f"election of {self.name}")
        _raise_what_fails(self._election)

    async def stop(self) -> None:
        """End as at SIGTERM: between steps, and the Lease is given back."""
        await self._end(GRACE_S)
        if self.elector is not None:
            await self.elector.release()
        self.is_over = True

    async def kill(self) -> None:
        """End at once: what was not sent by now never is, and the Lease has to expire."""
        self.is_over = True
        await self._end(0.0)

    async def _end(self, grace_s: float) -> None:
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        await self._terms.close(grace_s)
        if self._election is not None:
            self._election.cancel()
            await asyncio.wait([self._election])
        await self._recorder.stop(grace_s)

    # --- its caches

    def _heard(self, cache: Cache, change: Change, old: Object | None, new: Object | None) -> None:
        if self.is_over or self.is_deaf:
            return
        selection = cache.selection
        if new is not None and selects(selection.label_selector, new):
            cache.changed(change, old, selection.slim(new))
        elif old is not None and selects(selection.label_selector, old):
            cache.changed(Change.DELETED, selection.slim(old), None)

    def _fill(self, cache: Cache) -> None:
        selection = cache.selection
        found = [o for o in self.store.of(selection.resource) if selects(selection.label_selector, o)]
        cache.listed([selection.slim(obj) for obj in found], self.store.version)

    async def _list_anew(self, resource: Resource) -> None:
        self._fill(self.hub.caches.own(resource))

    def hear_again(self) -> None:
        """Broken watches are noticed, and list anew."""
        self.is_deaf = False
        if not self.is_over:
            for cache in self.hub.caches.all:
                self._context.run(self._fill, cache)


class KeyedCluster:
    """A store, the garbage collector, and processes of the operator. One alone leads without a Lease."""

    def __init__(self, host: Host, operators: int = 1) -> None:
        self.store = Store()
        self.garbage = GarbageCollector(self.store)
        self.operators: list[KeyedOperator] = []
        self.broken: list[str] = []
        """Laws that were broken, one sentence each; ``run`` raises them."""
        self.watchers: list[Callable[[str, Resource, Object | None, Object | None], None]] = []
        """Told of every change as it happens, as ``Store.changed`` is: laws, and whoever plays a kubelet."""
        self.store.changed = self._changed
        self._host = host
        self._wanted = operators
        self._last_broken = asyncio.Event()

    def _changed(self, verb: str, resource: Resource, old: Object | None, new: Object | None) -> None:
        self.garbage.changed(old, new)
        for watcher in self.watchers:
            watcher(verb, resource, old, new)
        if self.broken:
            self._last_broken.set()

    async def __aenter__(self) -> KeyedCluster:
        for _ in range(self._wanted):
            self.start_operator()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for operator in list(self.operators):
            await self.stop_operator(operator)

    def start_operator(self) -> KeyedOperator:
        """Start a process that knows nothing yet."""
        name = f"operator-{next(self.store.identities)}"
        started = KeyedOperator(self.store, self._host, name, stands_for_election=self._wanted > 1)
        self.operators.append(started)
        started.start()
        return started

    async def stop_operator(self, which: KeyedOperator) -> None:
        """As SIGTERM does."""
        await which.stop()
        self.operators.remove(which)

    async def kill_operator(self, which: KeyedOperator) -> None:
        """At once."""
        await which.kill()
        self.operators.remove(which)

    @property
    def leader(self) -> KeyedOperator | None:
        """The operator that leads; None while nobody does."""
        return next((one for one in self.operators if one.is_leader), None)

    async def run(self, seconds: float) -> None:
        """Let virtual time pass. Raises LawBroken when a law was broken meanwhile."""
        with contextlib.suppress(TimeoutError):  # the time is over, and no law was broken
            async with asyncio.timeout(seconds):
                await self._last_broken.wait()
        if self.broken:
            raise LawBroken("\n".join(self.broken))

    def events(self, reason: str = "") -> list[tuple[str, str]]:
        """(reason, message) of the Events raised so far, oldest first."""
        return [(e["reason"], e["message"]) for e in self.store.events if reason in ("", e["reason"])]

    def find(self, resource: Resource, name: str, namespace: str = "default") -> Object | None:
        """One object as it is now."""
        return self.store.objects.get((resource.plural, namespace, name))

    def names_of(self, resource: Resource) -> list[str]:
        """Names of all objects of a kind."""
        return sorted(key_of(obj)[1] for obj in self.store.of(resource))


def _raise_what_fails(task: asyncio.Task[None]) -> None:
    """A task that fails would end the process: hand it to the loop's exception handler."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    task.add_done_callback(ended)
