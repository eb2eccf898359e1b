"""The API server: calls that fail, answers that get lost, watches that lag."""

from __future__ import annotations

import asyncio

from aibrix_operator.cluster import errors
from aibrix_operator.sim.happening import Stage, fault
from aibrix_operator.sim.store import in_time

LONGEST_DELAY_S = 0.2
LATEST_S = 3.0


@fault("refused-write", 3)
def writes_fail(stage: Stage) -> None:
    """For a while calls to the API server are slow, fail, or are carried out without an answer."""
    store, chance = stage.cluster.store, stage.chance
    if store.delay is not None:
        return
    share = chance.choice([0.3, 0.7])

    def fail(*call: object) -> Exception | None:
        if chance.random() >= share:
            return None
        return chance.choice(
            [errors.Unavailable("HTTP 503: not now", status=503), errors.Conflict("HTTP 409: modified", status=409)]
        )

    def lose(*call: object) -> Exception | None:
        return errors.Unavailable("the answer is lost") if chance.random() < share / 3 else None

    async def delay() -> None:
        await asyncio.sleep(chance.uniform(0, LONGEST_DELAY_S))

    fault_before, lost_before = store.fault, store.lost

    def undo() -> None:
        store.fault, store.lost, store.delay = fault_before, lost_before, None

    store.fault, store.lost, store.delay = fail, lose, delay
    stage.tell(f"the API server fails {share:.0%} of calls for {stage.lasts(undo):.0f} s")


@fault("late-write", 2)
def writes_late(stage: Stage) -> None:
    """For a while some writes are carried out only after the operator gave up on them."""
    store, chance = stage.cluster.store, stage.chance
    if store.late is not in_time:
        return

    def late(*call: object) -> float | None:
        return chance.uniform(0.0, LATEST_S) if chance.random() < 0.3 else None

    def undo() -> None:
        store.late = in_time

    store.late = late
    stage.tell(f"writes arrive late for {stage.lasts(undo):.0f} s")


@fault("stale-watch", 3)
def watch_lags(stage: Stage) -> None:
    """For a while watches tell of changes late."""
    store = stage.cluster.store
    if store.watch_delay_s:
        return

    def undo() -> None:
        store.watch_delay_s = 0.0

    store.watch_delay_s = stage.chance.choice([0.5, 4.0])
    stage.tell(f"watches are {store.watch_delay_s:.1f} s late for {stage.lasts(undo):.0f} s")
