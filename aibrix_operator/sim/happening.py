"""What can happen in a schedule: the registry of named events and faults, and what they find when they happen.

A module of ``sim.happenings`` registers small functions with ``@event`` (what users and engines wish for) or with
``@fault``. Each gets a ``Stage`` with a random generator of its own, so leaving one out leaves the choices of all
others as they were: a failing schedule can be cut down to the few things that matter.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Resource
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.sidecar import SimulatedEngine, SimulatedRuntime
from aibrix_operator.sim.world import SimulatedCluster

T = TypeVar("T")
GIB = 1 << 30

Happen: TypeAlias = "Callable[[Stage], Awaitable[None] | None]"
Undo: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Happening:
    """One kind of thing that can happen."""

    name: str
    weight: int
    """How often, relative to the others."""
    is_fault: bool
    happen: Happen
    needs_election: bool = False
    """Whether it can only happen where several operators stand for election."""

    @property
    def help(self) -> str:
        """What it does, in one line."""
        return inspect.cleandoc(self.happen.__doc__ or "").partition("\n")[0]


REGISTRY: dict[str, Happening] = {}
"""Name → happening, in the order of registration, which is that of the modules' lines."""


def event(name: str, weight: int) -> Callable[[Happen], Happen]:
    """Register what somebody wishes for, or what engines do in their daily life."""

    def register(happen: Happen) -> Happen:
        _register(Happening(name, weight, False, happen))
        return happen

    return register


def fault(name: str, weight: int, *, needs_election: bool = False) -> Callable[[Happen], Happen]:
    """Register what nobody wishes for."""

    def register(happen: Happen) -> Happen:
        _register(Happening(name, weight, True, happen, needs_election))
        return happen

    return register


def _register(happening: Happening) -> None:
    assert happening.name not in REGISTRY, f"{happening.name} is registered twice"
    REGISTRY[happening.name] = happening


@dataclass(slots=True)
class Story:
    """What has happened so far, for the reader of a failure and for the figures."""

    lines: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Happening → how often it met something that it could happen to."""


class Stage:
    """What one happening finds: the cluster, and its own chance. Deterministic in both."""

    def __init__(
        self, name: str, cluster: SimulatedCluster, chance: random.Random, story: Story, repairs: Repairs
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.chance = chance
        self._story = story
        self._repairs = repairs

    def tell(self, what: str) -> None:
        """It happens: one line of the story. A happening that finds nobody to happen to tells nothing."""
        self._story.lines.append(f"{asyncio.get_running_loop().time():9.3f} {self.name}: {what}")
        self._story.counts[self.name] += 1

    def lasts(self, undo: Undo, seconds: float | None = None) -> float:
        """Call ``undo`` after ``seconds`` (None: half a minute or so), or when the calm begins; how long that is."""
        seconds = self.chance.expovariate(1 / 30) if seconds is None else seconds
        self._repairs.due_after(seconds, undo)
        return seconds

    def alongside(self, work: Coroutine[Any, Any, None]) -> None:
        """Have ``work`` done while other things happen."""
        task = asyncio.get_running_loop().create_task(work)
        self._repairs.tasks.add(task)
        task.add_done_callback(self._repairs.tasks.discard)

    def pick(self, options: list[T]) -> T | None:
        """One of them, or None when there is none."""
        return self.chance.choice(options) if options else None

    # --- whom it can happen to, each in an order of its own

    def names_of(self, resource: Resource) -> list[str]:
        """Names of all objects of that kind."""
        return sorted(name for plural, _, name in self.cluster.store.objects if plural == resource.plural)

    def claims(self) -> list[str]:
        """Names of all claims."""
        return self.names_of(MODEL_CLAIMS)

    def pods(self) -> list[str]:
        """Names of all Pods."""
        return self.names_of(PODS)

    def runtimes(self) -> list[tuple[str, SimulatedRuntime]]:
        """All runtimes with their addresses."""
        return list(self.cluster.runtimes.by_ip.items())

    def engines(self, *phases: EnginePhase) -> list[tuple[SimulatedRuntime, SimulatedEngine]]:
        """All engines in one of these phases."""
        return [(r, e) for _, r in self.runtimes() for e in r.engines.values() if e.phase in phases]

    def annotated(self, prefix: str) -> list[tuple[str, str, str]]:
        """(Pod, claim, value) of all annotations whose key begins so."""
        found = []
        for pod in self.pods():
            for key, text in sorted(self.cluster.annotations(pod).items()):
                if key.startswith(prefix):
                    found.append((pod, key.removeprefix(prefix), text))
        return found

    def routes(self) -> list[tuple[str, str, str]]:
        """(Pod, claim, value) of all routes."""
        return self.annotated(names.ROUTE_PREFIX)


class Repairs:
    """What undoes the faults that last: each at its time, all at the calm."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[asyncio.TimerHandle, Undo]] = {}
        self._count = 0
        self.tasks: set[asyncio.Task[None]] = set()
        """What is looked at alongside; held here, because a loop holds tasks weakly."""

    def due_after(self, seconds: float, undo: Undo) -> None:
        """Call ``undo`` then."""
        self._count += 1
        number = self._count
        handle = asyncio.get_running_loop().call_later(seconds, self._undo, number)
        self._pending[number] = handle, undo

    def _undo(self, number: int) -> None:
        handle, undo = self._pending.pop(number)
        handle.cancel()
        undo()

    def all_now(self) -> None:
        """Undo everything that still lasts, oldest first."""
        for number in list(self._pending):
            self._undo(number)
