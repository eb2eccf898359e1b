"""Play one seed: the controllers unchanged in a simulated cluster, faults, the laws after every step, then the calm.

The entry for everybody who wants to know whether a seed passes:

    outcome = play(51)                                  # all faults that the seed draws
    outcome = play(51, faults=["lost-call"])            # these faults only
    outcome = play(51, only=[3, 17])                    # of its actions these alone
    outcome.violations                                  # empty when all is well

A play leaves nothing behind in its process: plays may follow each other, and each is the same every time.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
import traceback
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sim import crowd, loop, settled
from aibrix_operator.sim.happening import REGISTRY, Repairs, Stage, Story
from aibrix_operator.sim.happenings import pods, sleepers, users
from aibrix_operator.sim.reached import Reached
from aibrix_operator.sim.schedule import PLAY_S, SETUP, Action, chance_of, is_crowded, operators_of, plan
from aibrix_operator.sim.trace import trace_of
from aibrix_operator.sim.world import NAMESPACE, LawBroken, SimulatedCluster

CALM_S = 700.0
"""Longer than a request lives and a wait before the next try on top."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one play."""

    seed: int
    violations: tuple[str, ...]
    """Laws broken, errors logged, what was raised, and what had not settled after the calm; one sentence each."""
    story: tuple[str, ...]
    """What happened, with the virtual second."""
    happened: Counter[str]
    """Happening → how often; what found nobody to happen to is not counted."""
    phases: Counter[str]
    """Phase → how often a claim reached it."""
    reasons: Counter[str]
    """Type and reason of a condition → how often a claim came to say it."""
    events: Counter[str]
    """Reason → how often an Event was raised."""
    takeovers_s: tuple[float, ...]
    """After each killed leader: until another led."""
    virtual_s: float
    cpu_s: float
    trace: str
    """Equal for two plays in which the operator did the same at the same times."""
    actions: tuple[int, ...]
    """Numbers of the actions that were played."""

    @property
    def faults(self) -> Counter[str]:
        """Fault → how often it happened."""
        return Counter({name: count for name, count in self.happened.items() if REGISTRY[name].is_fault})


def play(
    seed: int, faults: Collection[str] | None = None, *, only: Collection[int] | None = None, calm_s: float = CALM_S
) -> Outcome:
    """Play one schedule. ``faults`` None: those that the seed draws. ``only``: the numbers of the actions to play.

    What the play itself raises is a violation too: one seed must not take the figures of all others with it.
    Raises ``schedule.UnknownFaults``.
    """
    actions = tuple(a for a in plan(seed, faults) if only is None or a.number in only)
    state, collects = random.getstate(), gc.isenabled()
    gc.disable()  # most of what a play makes lives as long as it does, and looking it over again costs a tenth of it
    random.seed(f"{seed}/jitter")  # what the controllers themselves draw
    began_s = time.process_time()
    logger, errors = logging.getLogger("aibrix_operator"), _Errors()
    level = logger.level
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)  # each failed call would be told, and that is the point
    player = Player(seed)
    try:
        loop.run(_run(player, actions, operators_of(seed, faults), calm_s))
    except (loop.Livelock, loop.Deadlock) as error:
        player.violations.append(str(error))
    except Exception as error:
        player.violations.append(_told(error))
    finally:
        logger.setLevel(level)
        logger.removeHandler(errors)
        random.setstate(state)
        if collects:
            gc.enable()
    player.violations += errors.texts
    return player.outcome(actions, time.process_time() - began_s)


def _told(error: Exception) -> str:
    """What the play raised, in a line of its own by which failures are told apart, and where."""
    what = str(error).partition("\n")[0]
    return f"the play raised {type(error).__name__}: {what}\n{''.join(traceback.format_exception(error))}"


class _Errors(logging.Handler):
    """Keeps what was logged as an error: nothing that goes wrong outside should be one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        at_s = asyncio.get_running_loop().time()
        self.texts.append(f"at {at_s:.3f} s: an error was logged: {logging.Formatter().format(record)}")


async def _run(player: Player, actions: Sequence[Action], operators: int, calm_s: float) -> None:
    asyncio.get_running_loop().set_exception_handler(player.failed)
    async with SimulatedCluster(operators, is_strict=is_crowded(player.seed)) as cluster:
        try:
            await player.trouble(cluster, actions, PLAY_S)
            await player.calm(cluster, calm_s)
        except LawBroken as error:
            player.violations += str(error).splitlines()
        finally:
            player.sum_up(cluster)


class Player:
    """Makes the actions of one schedule happen to a cluster."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.violations: list[str] = []
        self.story = Story()
        self._reached = Reached()
        self._repairs = Repairs()
        self._virtual_s = 0.0
        self._takeovers_s: tuple[float, ...] = ()
        self._trace = ""

    async def trouble(self, cluster: SimulatedCluster, actions: Sequence[Action], until_s: float) -> None:
        """Set the cluster up and let the actions happen, each at its time. Raises LawBroken."""
        self._reached.watch(cluster.store)
        self._set_up(self._stage("setup", SETUP, cluster))
        for action in actions:
            await _run_until(cluster, action.at_s)
            happens = action.happening.happen(self._stage(action.happening.name, action.number, cluster))
            if happens is not None:
                await happens
        await _run_until(cluster, until_s)

    async def calm(self, cluster: SimulatedCluster, seconds: float) -> None:
        """End all trouble, mend what users broke, let time pass, and look whether all has settled. Raises LawBroken."""
        stage = self._stage("calm", "calm", cluster)
        stage.tell("all trouble ends")
        self._repairs.all_now()
        for _, runtime in stage.runtimes():
            for engine in runtime.engines.values():
                engine.mapped_bytes = engine.running = engine.waiting = 0
                engine.metrics_observed = True
        for name in stage.claims():
            spec = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, name]["spec"]
            if (spec.get("perGPU") or {}).get("maximumFootprint") == "0":
                users.declare(stage, name)
        await cluster.run(seconds)
        self.violations += [f"did not settle: {sentence}" for sentence in settled.all_unsettled(cluster)]

    def sum_up(self, cluster: SimulatedCluster) -> None:
        """Take the figures, at the end."""
        self._virtual_s = cluster.now_s()
        self._takeovers_s = tuple(cluster.leader_laws.takeovers_s)
        self._trace = trace_of(cluster, self.story.lines)
        self._reached.events.update(e["reason"] for e in cluster.store.events)

    def failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler: what fails outside of every task is a failure too."""
        self.violations.append(f"a callback failed: {context.get('exception') or context['message']!r}")

    def _stage(self, name: str, number: int | str, cluster: SimulatedCluster) -> Stage:
        return Stage(name, cluster, chance_of(self.seed, number), self.story, self._repairs)

    def _set_up(self, stage: Stage) -> None:
        if is_crowded(self.seed):
            crowd.set_up(stage)
            return
        for _ in range(stage.chance.randint(1, 3)):
            pods.add_pod(stage)
        sleepers.policy_changes(stage)

    def outcome(self, actions: Sequence[Action], cpu_s: float) -> Outcome:
        """What came of it."""
        return Outcome(
            seed=self.seed,
            violations=tuple(self.violations),
            story=tuple(self.story.lines),
            happened=Counter({name: n for name, n in self.story.counts.items() if name in REGISTRY}),
            phases=self._reached.phases,
            reasons=self._reached.reasons,
            events=self._reached.events,
            takeovers_s=self._takeovers_s,
            virtual_s=self._virtual_s,
            cpu_s=cpu_s,
            trace=self._trace,
            actions=tuple(a.number for a in actions),
        )


async def _run_until(cluster: SimulatedCluster, at_s: float) -> None:
    await cluster.run(max(0.0, at_s - cluster.now_s()))
