"""Random schedules of pools whose engines sleep: policies change, requests wake, and all of ``schedule`` besides.

``python -m aibrix_operator.sim.sleep_schedule FIRST LAST`` plays the seeds from FIRST up to and without LAST, printing
the story of each that fails.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from aibrix_operator.api import names
from aibrix_operator.api.route import RouteError, RouteState, parse_route
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim import loop, settled
from aibrix_operator.sim.schedule import GIB, PLAY_S, Schedule
from aibrix_operator.sim.world import NAMESPACE, SimulatedCluster

CALM_S = 700.0
"""Longer than a request lives, and a wait before the next try on top."""
_LENDS = '"noWakeReserveWhileAsleep":true'
POLICIES = (
    None,
    '{"lifecycle":{"sleepAfterSeconds":60}}',
    f'{{"lifecycle":{{"sleepAfterSeconds":3600,{_LENDS},"sleepToMakeRoomAfterSeconds":30}}}}',
    f'{{"lifecycle":{{"sleepAfterSeconds":40,{_LENDS}}}}}',
    f'{{"lifecycle":{{{_LENDS}}}}}',
    '{"lifecycle":{}}',
)


class SleepSchedule(Schedule):
    """Half of what happens concerns sleepers."""

    async def _do_something(self) -> None:
        if self.random.random() < 0.5:
            await super()._do_something()
            return
        actions: list[tuple[int, Callable[[], None]]] = [
            (2, self.policy_changes),
            (10, self.sleeper_asked_for),
            (5, self.request_answered),
            (5, self.engine_at_rest),
            (2, self.request_taken_back),
            (2, self.footprint_differs),
        ]
        (action,) = self.random.choices([a for _, a in actions], [w for w, _ in actions])
        action()

    def policy_changes(self) -> None:
        policy = self.random.choice(POLICIES)
        self._tell(f"the policy is {policy}")
        self.cluster.set_policy(policy)

    def sleeper_asked_for(self) -> None:
        """As the gateway does it: for what the route calls sleeping, and only where no request stands."""
        found = []
        for pod in self._names(PODS):
            annotations = self.cluster.annotations(pod)
            for key, text in annotations.items():
                claim = key.removeprefix(names.ROUTE_PREFIX)
                if (
                    key.startswith(names.ROUTE_PREFIX)
                    and _sleeps(text)
                    and names.wake_annotation(claim) not in annotations
                ):
                    found.append((pod, claim))
        if found:
            pod, claim = self.random.choice(sorted(found))
            self._tell(f"{claim} is asked for on {pod}")
            self.cluster.request_wake(pod, claim)

    def request_taken_back(self) -> None:
        """A user takes an annotation off by hand."""
        for pod in self._names(PODS):
            for key in self.cluster.annotations(pod):
                if key.startswith(names.WAKE_PREFIX):
                    self._tell(f"{key} is taken off {pod}")
                    self.cluster.store.change(PODS, (NAMESPACE, pod), {"metadata": {"annotations": {key: None}}})
                    return

    def request_answered(self) -> None:
        if found := self._engine(EnginePhase.ACTIVE):
            found[1].finished += 1

    def engine_at_rest(self) -> None:
        if found := self._engine(EnginePhase.ACTIVE):
            found[1].running = found[1].waiting = found[1].mapped_bytes = 0

    def footprint_differs(self) -> None:
        """What engines hold asleep from now on; None cannot be measured."""
        if runtime := self._runtime():
            runtime.asleep_bytes = self.random.choice([None, GIB // 4, GIB, 2 * GIB])


def _sleeps(text: str) -> bool:
    try:
        return parse_route(text).state is RouteState.SLEEPING
    except RouteError:
        return False


def unsettled(cluster: SimulatedCluster) -> list[str]:
    """What is not as it should be after the calm; no request may stand that long."""
    found = settled.unsettled(cluster)
    for (plural, _, pod), obj in cluster.store.objects.items():
        if plural == PODS.plural:
            for key in obj["metadata"].get("annotations") or {}:
                if key.startswith(names.WAKE_PREFIX):
                    found.append(f"{pod} still carries {key}")
        elif plural == MODEL_CLAIMS.plural:
            claim = cluster.status(pod)
            if any(i.reason == "WaitingForRoom" for i in claim.instances):
                found.append(f"{pod} still waits for room, and its request is over")
    return found


async def play(cluster: SimulatedCluster, seed: int, story: list[str]) -> list[str]:
    """One schedule; its story goes to ``story``. Returns what has not settled."""
    schedule = SleepSchedule(cluster, seed)
    schedule.story = story
    schedule.policy_changes()
    await schedule.play(PLAY_S)
    await schedule.calm(CALM_S)
    return unsettled(cluster)


async def _play(seed: int, story: list[str]) -> None:
    async with SimulatedCluster() as cluster:
        if found := await play(cluster, seed, story):
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
