"""Plays one story with one disturbance at one point of it, and says how it ended.

A point is the n-th write to the API server, call to a runtime, event of a watch, or reading of a runtime. The story is
played undisturbed first, which tells how many points it has and how it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aibrix_operator.cluster.watch import Change
from aibrix_operator.runtime_api.outcome import Done
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim import loop
from aibrix_operator.sim.settled import unsettled, unsettled_figures
from aibrix_operator.sim.world import SimulatedCluster

DOWN_S = 0.5
"""From a crash to the start of the next operator."""
RELIST_S = 20.0
"""From a lost event to the list that makes up for it."""
SETTLE_S = 150.0
"""After the last wish: a drain, a hold and the longest wait are over."""
FRESH_S = 25.0
"""Two rounds of an operator that knows nothing, which would divide again what is not as planned."""

WRITE, CALL, EVENT, READ = "write", "call", "event", "reading"
KINDS = {
    "crash before a write": WRITE,
    "crash after a write": WRITE,
    "crash before a call": CALL,
    "crash after a call": CALL,
    "a lost event": EVENT,
    "a stale reading": READ,
}
"""Disturbance → what its points are."""

Story = Callable[[SimulatedCluster], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happens, and at the how manieth of its points (from 0)."""

    kind: str
    point: int


@dataclass(slots=True)
class Ending:
    """How a play ended."""

    claims: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Claim → its phase and the Pods of its instances."""
    awake: frozenset[tuple[str, str]] = frozenset()
    """(Pod address, model) of the engines that are awake."""
    unsettled: list[str] = field(default_factory=list)
    rewritten: list[tuple[object, ...]] = field(default_factory=list)
    """Limits that an operator wrote which planned anew."""
    broken: list[str] = field(default_factory=list)
    """Laws broken, and errors logged."""
    points: Counter[str] = field(default_factory=Counter)


def play(story: Story, disturbance: Disturbance | None = None) -> Ending:
    """One play in virtual time."""
    errors, logger = _Errors(), logging.getLogger("aibrix_operator")
    logger.addHandler(errors)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        ending = loop.run(_play(story, disturbance))
    finally:
        logger.setLevel(level)
        logger.removeHandler(errors)
    ending.broken += errors.texts
    return ending


async def _play(story: Story, disturbance: Disturbance | None) -> Ending:
    ending = Ending()
    async with SimulatedCluster() as cluster:
        points = _Points(cluster, disturbance)
        try:
            await story(cluster)
            await cluster.run(SETTLE_S)
            ending.points = points.seen
            await points.are_over()
            ending.claims = {
                name: (str(status.phase), tuple(i.pod for i in status.instances))
                for plural, _, name in sorted(cluster.store.objects)
                if plural == "modelclaims"
                for status in [cluster.status(name)]
            }
            ending.awake = frozenset(
                (ip, engine.model)
                for ip, runtime in cluster.runtimes.by_ip.items()
                for engine in runtime.engines.values()
                if engine.phase is EnginePhase.ACTIVE
            )
            ending.unsettled = [*unsettled(cluster), *unsettled_figures(cluster)]
            await cluster.stop_controller()
            before = {ip: len(runtime.calls) for ip, runtime in cluster.runtimes.by_ip.items()}
            cluster.start_controller()
            await cluster.run(FRESH_S)
            ending.rewritten = [
                (ip, *call[:3])
                for ip, runtime in cluster.runtimes.by_ip.items()
                for call in runtime.calls[before[ip] :]
                if call[0] == "kv-limit"
            ]
        except AssertionError as error:
            ending.broken += str(error).splitlines()
    return ending


def differences(story: Story) -> tuple[int, list[str]]:
    """How many disturbed plays there were, and what ended in another way than undisturbed; a sentence each."""
    calm = play(story)
    assert (calm.broken, calm.unsettled, calm.rewritten) == ([], [], [])
    plays = [Disturbance(kind, point) for kind, what in KINDS.items() for point in range(calm.points[what])]
    return len(plays), [difference for one in plays for difference in _differences(calm, play(story, one), one)]


def _differences(calm: Ending, ending: Ending, disturbance: Disturbance) -> list[str]:
    compared = {
        "claims": (ending.claims, calm.claims),
        "awake": (ending.awake, calm.awake),
        "unsettled": (ending.unsettled, []),
        "limits that a fresh plan changes": (ending.rewritten, []),
        "broken": (ending.broken, []),
    }
    return [
        f"{disturbance.kind} {disturbance.point}: {what}: {found} instead of {wanted}"
        for what, (found, wanted) in compared.items()
        if found != wanted
    ]


class _Points:
    """Counts the points of a cluster, and disturbs it at the one that was asked for."""

    def __init__(self, cluster: SimulatedCluster, disturbance: Disturbance | None) -> None:
        self.cluster = cluster
        self.disturbance = disturbance
        self.seen: Counter[str] = Counter()
        self._is_dead = False
        self._crash: asyncio.Task[None] | None = None
        self._answers: dict[str, object] = {}
        self._told: dict[tuple[str, str, str], object] = {}
        """Object → as a watch told of it last."""
        self._patch, cluster.store._patch = cluster.store._patch, self._write
        self._call, cluster.runtimes._call = cluster.runtimes._call, self._call_runtime
        self._see, cluster.runtimes._see = cluster.runtimes._see, self._read
        self._tell, cluster.store._tell = cluster.store._tell, self._event

    async def are_over(self) -> None:
        """Wait for a crash that is under way, and disturb nothing any more."""
        self.disturbance = None
        if self._crash is not None:
            await self._crash

    async def _write(self, *values, **named):
        return await self._crashing("write", self._patch, values, named)

    async def _call_runtime(self, *values, **named):
        return await self._crashing("call", self._call, values, named)

    async def _crashing(self, what, carry_out, values, named):
        await self._if_dead()
        if self._is_due(f"crash before a {what}"):
            self._begin_crash()
            await self._if_dead()
        is_last = self._is_due(f"crash after a {what}")
        self.seen[what] += 1
        try:
            return await carry_out(*values, **named)
        finally:
            if is_last:
                self._begin_crash()
                await self._if_dead()

    async def _read(self, base):
        await self._if_dead()
        is_stale = self._is_due("a stale reading") and base in self._answers
        self.seen[READ] += 1
        if is_stale:
            answer = self._answers[base]
            self.cluster.runtimes.answered(base.removeprefix("http://").rpartition(":")[0], answer.answer)
            return answer
        answer = await self._see(base)
        if isinstance(answer, Done):
            self._answers[base] = answer
        return answer

    def _event(self, resource, change, old, new):
        if asyncio.get_running_loop().time() == 0:  # an operator lists what there is when it starts
            self._tell(resource, change, old, new)
            return
        is_lost = self._is_due("a lost event")
        self.seen[EVENT] += 1
        obj = old if new is None else new
        key = (resource.plural, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if not is_lost:
            self._told[key] = new
            self._tell(resource, change, old, new)
            return
        asyncio.get_running_loop().call_later(RELIST_S, self._relist, resource, key)

    def _relist(self, resource, key) -> None:
        """Tell of one object what a list shows beside what was told last."""
        before, now = self._told.get(key), self.cluster.store.objects.get(key)
        self._told[key] = now
        if before is not None and now is not None and before["metadata"]["uid"] != now["metadata"]["uid"]:
            self._tell(resource, Change.DELETED, before, None)
            before = None
        if now is not None and before != now:
            self._tell(resource, Change.ADDED if before is None else Change.MODIFIED, before, now)
        elif now is None and before is not None:
            self._tell(resource, Change.DELETED, before, None)

    def _is_due(self, kind: str) -> bool:
        disturbance = self.disturbance
        return disturbance is not None and disturbance.kind == kind and disturbance.point == self.seen[KINDS[kind]]

    async def _if_dead(self) -> None:
        """Nothing of an operator that has crashed reaches anybody; it is cut while it waits here."""
        if self._is_dead:
            await asyncio.Event().wait()

    def _begin_crash(self) -> None:
        self._is_dead, self.disturbance = True, None
        self._crash = asyncio.get_running_loop().create_task(self._crash_and_start())

    async def _crash_and_start(self) -> None:
        await self.cluster.kill_controller(self.cluster.leader)
        await asyncio.sleep(DOWN_S)
        self._is_dead = False
        self.cluster.start_controller()


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append("logged: " + logging.Formatter().format(record))
