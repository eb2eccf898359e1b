"""The loop of a kind with a pass per object: observe → decide → act, woken by whatever concerns the object.

A pass waits for its own writes, so no second decision about an object is made before the first is done and seen: what
was created or deleted lies over the caches at once, and where an answer was lost, the children are listed anew before
anything is decided. Calls that may take long run beside the passes, in lanes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.events import ObjectReference
from aibrix_operator.cluster.patiently import patiently
from aibrix_operator.cluster.resource import Key, Object, Resource, key_of
from aibrix_operator.cluster.step_queue import Finished as CallEnded
from aibrix_operator.cluster.step_queue import StepQueue
from aibrix_operator.cluster.watch import Change
from aibrix_operator.cluster.work_queue import WorkQueue
from aibrix_operator.controller.cache import Cache
from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.kind import Kind, Reads, View
from aibrix_operator.controller.steps import Call, Finished, Moment, Plan, SetFinalizer, SetStatus
from aibrix_operator.controller.writing import DONE, Ended, OthersStep, Writing

log = logging.getLogger(__name__)

S = TypeVar("S")
M = TypeVar("M")

PASSES = 8
"""Objects of a kind that are worked on side by side."""
WRITES = 16
CALLS = 128
SHORTEST_WAIT_S = 0.001
"""A timer may fire a trifle before its time; a pass that finds the time not yet come must not loop."""
_BACKOFF = Backoff(initial_s=0.2, max_s=30.0)


class KeyedController(Generic[S, M]):
    """A ``Controller`` of one kind. Its memory lasts a term; losing it delays things and breaks nothing."""

    def __init__(self, kind: Kind[S, M], hub: Hub) -> None:
        """Make those of all own kinds of a process before the watches of its caches."""
        self._kind = kind
        self._hub = hub
        self._own = hub.caches.own(kind.resource)
        self._caches: dict[Resource, Cache] = {kind.resource: self._own}
        self._writing = Writing(kind.name, kind.resource, hub, self._caches)
        self._passes: WorkQueue[Key] | None = None
        self._calls: StepQueue[tuple[str, str]] | None = None
        self._slots = asyncio.Semaphore(WRITES)
        self._memory: dict[Key, tuple[str, M]] = {}
        """Key → UID and what is remembered of it."""
        self._finished: dict[str, list[Finished]] = defaultdict(list)
        """By UID."""
        self._unsure: dict[Key, set[Resource]] = defaultdict(set)
        """Children of which a write may have been done that nobody answered."""
        self._refusals: dict[Key, int] = {}
        self._own.listen(self._own_changed)
        for reads in kind.reads:
            cache = self._caches[reads.selection.resource] = hub.caches.of(reads.selection)
            cache.listen(partial(self._other_changed, reads))

    @property
    def name(self) -> str:
        """The kind's."""
        return self._kind.name

    @property
    def own(self) -> Mapping[Resource, Cache]:
        """The one kind."""
        return {self._kind.resource: self._own}

    @property
    def metrics(self) -> Sequence[CollectorRegistry]:
        """The frame's, for all its kinds. A kind registers its own there too."""
        return (self._hub.metrics.registry,)

    # --- terms

    async def begin(self) -> None:
        """List the children that the last leader may have made, and start passes, with no memory."""
        for reads in self._kind.reads:
            if reads.is_child:
                await self._list_patiently(reads)
        for of_the_last_term in (self._memory, self._finished, self._unsure, self._refusals):
            of_the_last_term.clear()
        self._calls = StepQueue(f"{self.name} call", concurrency=CALLS)
        self._passes = WorkQueue(self.name, self._pass, workers=PASSES, backoff=_BACKOFF)
        self._passes.start()
        for obj in self._own.values():
            self._passes.wake(key_of(obj))

    async def end(self, grace_s: float) -> None:
        """As ``Controller.end``."""
        passes, calls = self._passes, self._calls
        self._passes = self._calls = None
        if passes is not None and calls is not None:
            await asyncio.gather(passes.stop(grace_s), calls.stop(grace_s))

    async def _list_patiently(self, reads: Reads) -> None:
        with contextlib.suppress(errors.NotFound):  # not installed: no child of that kind is there
            await patiently(lambda: self._list(reads.selection.resource, None), self.name)

    async def _list(self, resource: Resource, namespace: str | None) -> None:
        cache = self._caches[resource]
        selection = cache.selection
        namespace = (namespace or self._hub.namespace) if selection.is_namespaced else None
        found, version = await self._hub.reader.list_all(resource, namespace, label_selector=selection.label_selector)
        number = int(version) if version.isdecimal() else 0
        cache.listed([selection.slim(obj) for obj in found], number, namespace)

    # --- wakes

    def look(self, key: Key) -> None:
        """Have a pass look at this object; nothing while this replica does not lead."""
        if self._passes is not None:
            self._passes.wake(key)

    def _own_changed(self, _: Change, old: Object | None, new: Object | None) -> None:
        obj = new if new is not None else old
        if obj is not None:
            self.look(key_of(obj))

    def _other_changed(self, reads: Reads, change: Change, old: Object | None, new: Object | None) -> None:
        if self._passes is not None:
            for key in reads.wakes(change, old, new):
                self._passes.wake(key)

    # --- a pass

    async def _pass(self, key: Key) -> None:
        began_s = time.perf_counter()
        try:
            for resource in list(self._unsure.get(key, ())):
                await self._list(resource, key[0] or None)
                self._unsure[key].discard(resource)
            self._unsure.pop(key, None)
            if self._calls is None:
                return  # the term ended before the pass began
            own = self._own.get(key)
            plan = None if own is None else self._plan(key, own)
            if own is None or plan is None:
                self._forget(key)
            else:
                await self._act(key, own, plan)
        finally:
            self._hub.metrics.pass_seconds.labels(self.name).observe(time.perf_counter() - began_s)

    def _plan(self, key: Key, own: Object) -> Plan | None:
        uid = own["metadata"]["uid"]
        now = Moment(self._hub.wall(), asyncio.get_running_loop().time())
        assert self._calls is not None
        calls = frozenset(lane for of_uid, lane in self._calls.keys_in_flight() if of_uid == uid)
        view = View(own, now, tuple(self._finished.pop(uid, ())), calls, self._caches)
        snapshot = self._kind.observe(view)
        if snapshot is None:
            return None
        of_uid, memory = self._memory.get(key, ("", None))
        plan, remembered = self._kind.decide(
            snapshot, self._kind.fresh if memory is None or of_uid != uid else memory, now
        )
        self._memory[key] = uid, remembered
        return plan

    def _forget(self, key: Key) -> None:
        uid, _ = self._memory.pop(key, ("", None))
        self._finished.pop(uid, None)
        self._refusals.pop(key, None)
        if self._passes is not None:
            self._passes.forget(key)

    async def _act(self, key: Key, own: Object, plan: Plan) -> None:
        uid = own["metadata"]["uid"]
        for step in plan.steps:
            if isinstance(step, Call):
                self._call(key, uid, step)
        others = [s for s in plan.steps if not isinstance(s, Call | SetFinalizer | SetStatus)]
        ended = await asyncio.gather(*(self._write(step, own) for step in others))
        unsure = {step.resource for step, one in zip(others, ended, strict=True) if one.is_unsure}
        if unsure:
            self._unsure[key] |= unsure
        own_steps = [s for s in plan.steps if isinstance(s, SetFinalizer | SetStatus)]
        last, ended_own = await self._write_own(own_steps, own, ended)
        self._sort(key, uid, [*ended, *ended_own], has_written=bool(others))
        for note in plan.notes:
            self._emit(last, note.type, note.reason, note.message)
        if plan.look_after_s is not None and self._passes is not None:
            self._passes.wake_after(key, max(plan.look_after_s, SHORTEST_WAIT_S))

    async def _write(self, step: OthersStep, own: Object) -> Ended:
        async with self._slots:
            return await self._writing.write(step, own)

    async def _write_own(
        self, steps: Sequence[SetFinalizer | SetStatus], own: Object, before: Sequence[Ended]
    ) -> tuple[Object, list[Ended]]:
        """One after the other, each in the version that the last one made. A refusal elsewhere does not keep a status
        from being told, but a finalizer from being taken off; what must be tried again keeps both."""
        ended: list[Ended] = []
        is_refused = any(one.refused is not None for one in before)
        if any(one.retry is not None for one in before):
            return own, ended
        for step in steps:
            if isinstance(step, SetFinalizer) and not step.present and is_refused:
                continue
            one, own = await self._writing.write_own(step, own)
            ended.append(one)
            if one is not DONE:
                break
        return own, ended

    def _sort(self, key: Key, uid: str, ended: Sequence[Ended], *, has_written: bool) -> None:
        """Hand refusals to the next pass, and see to it that there is one. Raises what the queue is to back off for."""
        refused = [one.refused for one in ended if one.refused is not None]
        retries = [one.retry for one in ended if one.retry is not None]
        if refused:
            self._finished[uid] += refused
        else:
            self._refusals.pop(key, None)
        if retries:
            raise next((error for error in retries if not isinstance(error, errors.Conflict)), retries[0])
        if self._passes is None:
            return
        if refused:
            # Told at once the first time; a plan that tries again and again is slowed down.
            count = self._refusals[key] = self._refusals.get(key, 0) + 1
            self._passes.wake_after(key, _BACKOFF.delay_s(count - 1) if count > 1 else 0.0)
        elif has_written:
            self._passes.wake(key)  # what the watches tell of it later is the same

    def _emit(self, own: Object, type_: Any, reason: str, message: str) -> None:
        resource, metadata = self._kind.resource, own["metadata"]
        regarding = ObjectReference(
            resource.api_version, self._kind.kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"]
        )
        self._hub.recorder.emit(regarding, type_, reason, message, "Reconcile")

    # --- calls

    def _call(self, key: Key, uid: str, call: Call) -> None:
        if self._calls is not None:
            self._calls.submit((uid, call.lane), partial(self._kind.perform, call), partial(self._called, key, call))

    def _called(self, key: Key, call: Call, ended: CallEnded[tuple[str, str]]) -> None:
        if isinstance(ended.error, asyncio.CancelledError):
            return
        error = ended.error if isinstance(ended.error, Exception) else None
        own = self._own.get(key)
        if own is not None and own["metadata"]["uid"] == ended.key[0]:
            self._finished[ended.key[0]].append(Finished(call, ended.value, error))
            self.look(key)
