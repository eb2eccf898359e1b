"""Who is killed: the leader, a sidecar, an engine or a Pod, drawn from a seed; never more than the reference bears.

An engine is started again five times in its life, so it is killed five times at most; the pool has one spare Pod, so
the next Pod goes when all are back; and a leader has a successor that is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import PODS, Object
from aibrix_operator.sandbox import pool, processes
from bench.chaos.stage import OPERATORS, Stage

ENGINE_LIVES = 5
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 6.0
TAKEN_OVER_WITHIN_S = 5.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Kill:
    """What was killed, and when. ``model`` is empty where all engines of the Pod died with it."""

    kind: str
    at_s: float
    pod_uid: str = ""
    model: str = ""


class Kills:
    """Kills until it is cancelled, and knows what it did."""

    def __init__(self, stage: Stage, seed: int, cards: int) -> None:
        self._stage = stage
        self._cards = cards
        self._rng = random.Random(seed)
        self._done: list[Kill] = []
        self._lives: Counter[tuple[str, str]] = Counter()
        self.takeovers_s: list[float] = []
        """From the kill of a leader until another process says that it leads."""
        self.broken: list[str] = []

    @property
    def counts(self) -> Counter[str]:
        return Counter(kill.kind for kill in self._done)

    def explain(self, pod_uid: str, model: str, since_s: float) -> str | None:
        """The kill since then that ends an answer of this engine; None when there was none.

        Neither a sidecar's end nor a leader's may cut an answer.
        """
        for kill in reversed(self._done):
            if kill.at_s >= since_s and kill.pod_uid == pod_uid and kill.model in ("", model):
                return f"{kill.kind} was killed"
        return None

    async def run(self) -> None:
        kinds: dict[str, Callable[[], Awaitable[bool]]] = {
            "leader": self._kill_leader,
            "sidecar": self._kill_sidecar,
            "engine": self._kill_engine,
            "pod": self._kill_pod,
        }
        while True:
            for kind in self._rng.sample(list(kinds), len(kinds)):  # each comes as often as the others
                await asyncio.sleep(self._rng.uniform(SHORTEST_PAUSE_S, LONGEST_PAUSE_S))
                await kinds[kind]()

    # --- each returns whether there was somebody to kill

    async def _kill_leader(self) -> bool:
        replicas = self._stage.replicas()
        probes = [await self._stage.probe(replica) for replica in replicas]
        leaders = [one for one, said in zip(replicas, probes, strict=True) if said.get("leader")]
        if len(leaders) != 1 or [said.get("status") for said in probes] != ["ready"] * OPERATORS:
            return False
        processes.signal_process(leaders[0].process, signal.SIGKILL)
        self._note(Kill("leader", time.monotonic()))
        await self._await_successor(time.monotonic())
        return True

    async def _await_successor(self, killed_s: float) -> None:
        while (waited_s := time.monotonic() - killed_s) < 2 * TAKEN_OVER_WITHIN_S:
            if any([await self._stage.leads(replica) for replica in self._stage.replicas()]):
                self.takeovers_s.append(waited_s)
                break
            await asyncio.sleep(_LOOK_S)
        if waited_s > TAKEN_OVER_WITHIN_S:
            self.broken.append(f"a leader was killed, and for {waited_s:.1f} s nobody led")

    async def _kill_sidecar(self) -> bool:
        pod = self._choose(self._stage.ready_pods())
        sidecar = None if pod is None else self._stage.folder(pod["metadata"]["uid"]).sidecar
        if sidecar is None or not processes.is_alive(sidecar):
            return False
        processes.signal_process(sidecar, signal.SIGKILL)
        self._note(Kill("sidecar", time.monotonic()))
        return True

    async def _kill_engine(self) -> bool:
        found = [
            (pod["metadata"]["uid"], model, pid)
            for pod in self._stage.ready_pods()
            for model, pid in sorted(self._stage.engines(pod["metadata"]["uid"]).items())
            if self._lives[pod["metadata"]["uid"], model] < ENGINE_LIVES
        ]
        if not found:
            return False
        uid, model, pid = self._rng.choice(found)
        engine = processes.identify(pid)
        if engine is None or pid not in {process.pid for process in self._stage.folder(uid).processes()}:
            return False  # it is being started again
        self._note(Kill("engine", time.monotonic(), uid, model))
        self._lives[uid, model] += 1
        processes.signal_process(engine, signal.SIGKILL)
        return True

    async def _kill_pod(self) -> bool:
        """As when a machine's power goes: every process of the Pod at once, and then its object."""
        ready = self._stage.ready_pods()
        pod = self._choose(ready)
        if pod is None or len(ready) < self._cards:
            return False
        metadata = pod["metadata"]
        self._note(Kill("pod", time.monotonic(), metadata["uid"]))
        for process in self._stage.folder(metadata["uid"]).processes():
            processes.signal_process(process, signal.SIGKILL)
        with contextlib.suppress(errors.NotFound):  # somebody was faster
            await self._stage.cluster.delete(PODS, pool.NAMESPACE, metadata["name"], uid=metadata["uid"])
        return True

    def _choose(self, pods: list[Object]) -> Object | None:
        by_name = sorted(pods, key=lambda pod: pod["metadata"]["name"])
        return self._rng.choice(by_name) if by_name else None

    def _note(self, kill: Kill) -> None:
        self._done.append(kill)
