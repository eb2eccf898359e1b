"""A random schedule of what users, nodes, engines and networks do. One seed plays the same way every time.

``python -m aibrix_operator.sim.schedule FIRST LAST`` plays the seeds from FIRST up to and without LAST, and prints the
story of each that fails.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Callable

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Object, Resource
from aibrix_operator.runtime_api.outcome import NotSent, Refused, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim import loop, settled
from aibrix_operator.sim.runtimes import Call, Result, SimulatedEngine, SimulatedRuntime
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster

GIB = 1 << 30
CARDS_GIB = (24, 40, 80, 95)
CLAIMS = tuple(f"claim-{n}" for n in range(8))
PODS_AT_MOST = 4
PLAY_S = 1200.0
CALM_S = 400.0
LONGEST_DELAY_S = 0.2
_NO_ANSWER: tuple[Result, ...] = (NotSent("no route"), NotSent("left alone", left_alone=True), Unknown("lost"))
_NOT_DONE: tuple[Result, ...] = (Refused("not now", 409), *_NO_ANSWER)


class Schedule:
    """``play`` for a while, then ``calm`` down; what must hold afterwards is for the caller to check."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.story: list[str] = []
        """What happened, for the reader of a failure."""
        self.faults = 0
        """How many of the things that happened were nobody's wish."""
        self.api_trouble = 0.0
        """Share of calls to the API server that go wrong."""
        self._pods = 0
        cluster.store.fault, cluster.store.lost, cluster.store.delay = self._fault, self._lost, self._delay

    async def play(self, seconds: float, pause_s: float = 8.0) -> None:
        """Do something every ``pause_s`` or so."""
        until_s = asyncio.get_running_loop().time() + seconds
        for _ in range(self.random.randint(1, 3)):
            self.pod_joins()
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            await self.cluster.run(min(left_s, self.random.expovariate(1 / pause_s)))
            await self._do_something()

    async def calm(self, seconds: float) -> None:
        """End all trouble, mend what users broke, and let time pass."""
        self._tell("calm")
        self.api_trouble = self.cluster.store.watch_delay_s = 0.0
        for runtime in self._runtimes():
            runtime.before_call = runtime.after_call = runtime.before_snapshot = None
            runtime.ignores_limits = False
            runtime.usable_bytes = tuple(abs(u) for u in runtime.usable_bytes)
            for engine in runtime.engines.values():
                engine.mapped_bytes = engine.running = engine.waiting = 0
                engine.metrics_observed = True
        for name in self._names(MODEL_CLAIMS):
            if self._footprint(name) == "0":
                self._declare(name)
        await self.cluster.run(seconds)

    async def _do_something(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (12, self.claim_applied),
            (5, self.claim_deleted),
            (4, self.claim_patched),
            (3, self.pod_joins),
            (1, self.pod_leaves),
            (2, self.pod_flips),
            (8, self.engine_loaded),
            (4, self.engine_crashes),
            (1, self.engine_fails),
            (2, self.engine_sleeps_or_wakes),
            (3, self.limits_ignored),
            (5, self.calls_troubled),
            (3, self.snapshots_troubled),
            (2, self.cards_blink),
            (3, self.api_troubled),
            (3, self.watch_lags),
            (2, self.restart),
        ]
        weights = [weight for weight, _ in actions]
        (action,) = self.random.choices([a for _, a in actions], weights)
        self.faults += action not in (self.claim_applied, self.claim_deleted, self.claim_patched, self.pod_joins)
        if action == self.restart:
            self._tell("the controller restarts")
            await self.cluster.stop_controller()
            self.cluster.start_controller()
        else:
            action()

    def restart(self) -> None:
        """Stands for a restart in the list of actions, which has to wait for it."""

    # --- users

    def claim_applied(self) -> None:
        free = [c for c in CLAIMS if c not in self._names(MODEL_CLAIMS)]
        if free:
            name = self.random.choice(free)
            footprint, floor = self.random.randint(2, 30), self.random.randint(1, 12)
            self._tell(f"{name} is applied, {footprint}+{floor} GiB")
            self.cluster.apply(name, f"{footprint}Gi", f"{floor}Gi")

    def claim_deleted(self) -> None:
        if claims := self._names(MODEL_CLAIMS):
            name = self.random.choice(claims)
            self._tell(f"{name} is deleted")
            self.cluster.delete_claim(name)

    def claim_patched(self) -> None:
        if claims := self._names(MODEL_CLAIMS):
            self._declare(self.random.choice(claims), self.random.random() < 0.15)

    def _declare(self, name: str, is_wrong: bool = False) -> None:
        footprint = "0" if is_wrong else f"{self.random.randint(2, 24)}Gi"
        floor = f"{self.random.randint(1, 10)}Gi"
        self._tell(f"{name} is declared {footprint}+{floor}")
        self.cluster.patch_claim(name, {"spec": {"perGPU": {"maximumFootprint": footprint, "kvFloor": floor}}})

    # --- nodes

    def pod_joins(self) -> None:
        if len(self._names(PODS)) < PODS_AT_MOST:
            name, size = f"pod-{self._pods}", self.random.choice(CARDS_GIB)
            self._pods += 1
            self._tell(f"{name} joins with {size} GiB")
            boot_s, stop_s = self.random.uniform(0, 20), self.random.choice([0.0, 0.0, 15.0])
            self.cluster.add_pod(name, size * GIB, boot_s=boot_s, stop_s=stop_s)

    def pod_leaves(self) -> None:
        if len(pods := self._names(PODS)) > 1:
            name = self.random.choice(pods)
            self._tell(f"{name} leaves")
            self.cluster.delete_pod(name)

    def pod_flips(self) -> None:
        if pods := self._names(PODS):
            name = self.random.choice(pods)
            if self.random.random() < 0.5:
                self.cluster.set_pod_ready(name, self.random.random() < 0.5)
            else:
                self.cluster.label_pod(name, {names.ENABLED_LABEL: self.random.choice([None, "true", "true"])})

    # --- engines

    def engine_loaded(self) -> None:
        if found := self._engine(EnginePhase.ACTIVE):
            _, engine = found
            engine.running, engine.waiting = self.random.randint(0, 6), self.random.choice([0, 0, 2])
            engine.metrics_observed = self.random.random() < 0.9
            engine.mapped_bytes = self.random.randint(0, max(engine.limit_bytes, 0))
            self._tell(f"{engine.model} maps {engine.mapped_bytes} of {engine.limit_bytes}")

    def engine_crashes(self) -> None:
        if found := self._engine(EnginePhase.ACTIVE, EnginePhase.BOOTING):
            runtime, engine = found
            self._tell(f"{engine.model} crashes")
            runtime.crash(engine.model, self.random.choice([2.0, 8.0, 32.0]))

    def engine_fails(self) -> None:
        if found := self._engine(EnginePhase.ACTIVE, EnginePhase.BOOTING, EnginePhase.RESTARTING):
            runtime, engine = found
            self._tell(f"{engine.model} fails for good")
            runtime.fail(engine.model)

    def engine_sleeps_or_wakes(self) -> None:
        if found := self._engine(EnginePhase.ACTIVE, EnginePhase.SLEEPING):
            runtime, engine = found
            self._tell(f"{engine.model} is put to sleep, or woken")
            if engine.phase is EnginePhase.SLEEPING:
                runtime.wake(engine.model)
            else:
                runtime.sleep(engine.model, GIB)

    # --- networks and drivers

    def limits_ignored(self) -> None:
        if runtime := self._runtime():
            runtime.ignores_limits = not runtime.ignores_limits
            self._tell(f"limits are {'ignored' if runtime.ignores_limits else 'taken again'} somewhere")

    def calls_troubled(self) -> None:
        """Calls to one runtime are refused, late, not carried out, or carried out without an answer."""
        runtime = self._runtime()
        if runtime is None:
            return
        if runtime.before_call is not None:
            runtime.before_call = runtime.after_call = None
            return
        self._tell("calls to a runtime go wrong")

        async def before(call: Call) -> Result | None:
            await asyncio.sleep(self.random.choice([0.0, 0.1, 1.0, 5.0]))
            if self.random.random() < 0.5:
                return None
            return self.random.choice(_NOT_DONE)

        runtime.before_call = before
        runtime.after_call = lambda call: Unknown("the answer is lost") if self.random.random() < 0.5 else None

    def snapshots_troubled(self) -> None:
        """One runtime stops answering, or answers again."""
        runtime = self._runtime()
        if runtime is None:
            return
        if runtime.before_snapshot is not None:
            runtime.before_snapshot = None
            return
        self._tell("a runtime does not answer")

        async def before() -> Result | None:
            await asyncio.sleep(self.random.choice([0.0, 0.5, 3.0]))
            if self.random.random() < 0.4:
                return None
            return self.random.choice(_NO_ANSWER)

        runtime.before_snapshot = before

    def cards_blink(self) -> None:
        """A card cannot be measured, or can again; the sign carries the size meanwhile."""
        if runtime := self._runtime():
            runtime.usable_bytes = tuple(-u for u in runtime.usable_bytes)
            self._tell("a card blinks")

    def api_troubled(self) -> None:
        self.api_trouble = self.random.choice([0.0, 0.0, 0.3, 0.7])
        self._tell(f"the API server fails {self.api_trouble:.0%} of calls")

    def watch_lags(self) -> None:
        self.cluster.store.watch_delay_s = self.random.choice([0.0, 0.5, 4.0])
        self._tell(f"watches are {self.cluster.store.watch_delay_s:.1f} s late")

    def _fault(self, verb: str, resource: Resource, name: str, body: object) -> Exception | None:
        if self.random.random() >= self.api_trouble:
            return None
        return self.random.choice(
            [errors.Unavailable("HTTP 503: not now", status=503), errors.Conflict("HTTP 409: modified", status=409)]
        )

    def _lost(self, verb: str, resource: Resource, name: str, body: object) -> Exception | None:
        return errors.Unavailable("the answer is lost") if self.random.random() < self.api_trouble / 3 else None

    async def _delay(self) -> None:
        if self.api_trouble:
            await asyncio.sleep(self.random.uniform(0, LONGEST_DELAY_S))

    # --- whom it hits

    def _names(self, resource: Resource) -> list[str]:
        return sorted(name for plural, _, name in self.cluster.store.objects if plural == resource.plural)

    def _footprint(self, claim: str) -> object:
        obj: Object = self.cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, claim]
        return (obj["spec"].get("perGPU") or {}).get("maximumFootprint")

    def _runtimes(self) -> list[SimulatedRuntime]:
        return list(self.cluster.runtimes.by_ip.values())

    def _runtime(self) -> SimulatedRuntime | None:
        runtimes = self._runtimes()
        return self.random.choice(runtimes) if runtimes else None

    def _engine(self, *phases: EnginePhase) -> tuple[SimulatedRuntime, SimulatedEngine] | None:
        engines = [(r, e) for r in self._runtimes() for e in r.engines.values() if e.phase in phases]
        return self.random.choice(engines) if engines else None

    def _tell(self, what: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():9.3f} {what}")


async def _play(seed: int, told: list[str]) -> None:
    """One schedule; its story goes to ``told``. Raises AssertionError when a law was broken or something is stuck."""
    async with SimulatedCluster() as cluster:
        schedule = Schedule(cluster, seed)
        schedule.story = told
        await schedule.play(PLAY_S)
        await schedule.calm(CALM_S)
        if found := settled.unsettled(cluster):
            raise AssertionError("\n".join(found))


def main(first: int, last: int) -> int:
    """Play the seeds and print what failed; the number of failures."""
    logging.getLogger("aibrix_operator").setLevel(
        logging.ERROR
    )  # each failed call would be told, and that is the point
    failures = 0
    for seed in range(first, last):
        story: list[str] = []
        try:
            loop.run(_play(seed, story))
        except AssertionError as error:
            failures += 1
            sys.stdout.write("\n".join([*story, f"seed {seed}: {error}", ""]))
    sys.stdout.write(f"{last - first} schedules, {failures} failed\n")
    return failures


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2])), 1))
