"""Nothing fails for awake models while the operator, the API server or Redis is dead; afterwards gateways follow again
without a rush on the API server."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

import pytest

from bench.soak.clients import Clients, Tally, evenly, session
from e2e.api import eventually
from e2e.gateway import Gateway
from e2e.gateway_stage import AMPLE, AWAKE, LOCAL, OPEN, Stage

OUTAGE_S = float(os.environ.get("AIBRIX_OUTAGE_S", "30"))
"""``make soak`` makes each last for ten minutes."""
HUNG_S = 3.0
"""Most of what can go wrong happens when it begins and when it ends."""
RATE, CONNECTIONS = 500.0, 48
LEAST_RATE = 20.0
"""A machine that others use too reaches less than ``RATE``; this much shows that clients were answered all the time."""
SPREAD_S, LIST_S = 5.0, 0.5
"""The second is what a list may take."""
KINDS = ("pods", "modelclaims", "modeladapters")
FOLLOWING_WITHIN_S = 90.0
"""Its watch, and the operator's, try again after a pause that grows to 45 s; then a list has its moment."""

pytestmark = pytest.mark.timeout(3 * OUTAGE_S + 300)


async def ask_until(is_over: threading.Event, stage: Stage) -> Tally:
    """Every awake model is asked through every gateway; one that has limits only through those that serve it without
    Redis too."""
    urls = [gateway.address.url for gateway in stage.gateways]
    free, ample = evenly(urls, AWAKE), evenly([urls[LOCAL], urls[OPEN]], [AMPLE])

    def choose(number: int) -> tuple[str, str]:
        return ample(number // 4) if number % 4 == 3 else free(number)

    async with session() as shared, Clients(shared, choose, RATE, CONNECTIONS).asking() as tally:
        await asyncio.to_thread(is_over.wait)
    return tally


def asked_during(
    stage: Stage, outage: AbstractContextManager[None], after: Callable[[], None], seconds: float = OUTAGE_S
) -> Tally:
    """Clients ask before ``outage``, while it lasts, and until ``after`` has seen that all is as before.

    They have a thread of their own: what is started again here ends with the thread that starts it.
    """
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        asking = beside.submit(lambda: asyncio.run(ask_until(is_over, stage)))
        try:
            time.sleep(1.0)  # the clients are at work before, and for as long as the outage is to last
            with outage:
                time.sleep(seconds)
            after()
        finally:
            is_over.set()
    return asking.result()


def check(what: str, tally: Tally) -> None:
    print(f"{what}: {tally}")
    assert tally.failed == 0, tally
    assert tally.strangers == []
    assert tally.rate >= LEAST_RATE, tally


def follows(stage: Stage, claim: str) -> None:
    """A claim that is made now is served by every gateway: by a fresh view, and an operator that works."""
    stage.pool.apply(claim, footprint="1536Mi", floor="512Mi")
    for gateway in stage.gateways:
        eventually(
            f"{gateway.pod_name} serves {claim}", lambda at=gateway: at.chat(claim).status == 200, FOLLOWING_WITHIN_S
        )
    stage.pool.delete(claim)


def test_no_request_fails_while_the_operator_is_dead(stage: Stage):
    tally = asked_during(stage, stage.without_operator(), lambda: follows(stage, "after-operator"))
    check(f"operator dead for {OUTAGE_S:.0f} s", tally)


def test_no_request_fails_while_the_api_server_is_dead_and_lists_are_spread_after_it(stage: Stage):
    before = {gateway.pod_name: _lists_told(gateway) for gateway in stage.gateways}

    def after() -> None:
        back_s = time.monotonic()
        follows(stage, "after-api-server")
        for gateway in stage.gateways:
            eventually(f"every watch of {gateway.pod_name} goes on", partial(_goes_on, gateway, back_s), 30.0)

    tally = asked_during(stage, stage.without_api_server(), after)

    check(f"API server dead for {OUTAGE_S:.0f} s", tally)
    lists = stage.lists()
    print({f"{gateway} {kind}": times for (gateway, kind), times in lists.items()})
    assert all(len(times) == 1 for times in lists.values()), lists
    assert {gateway.pod_name: _lists_told(gateway) - before[gateway.pod_name] for gateway in stage.gateways} == {
        gateway.pod_name: sum(name == gateway.pod_name for name, _ in lists) for gateway in stage.gateways
    }
    ended = [at for times in lists.values() for at in times]
    if any({"pods", "modelclaims"} <= {kind for name, kind in lists if name == at.pod_name} for at in stage.gateways):
        assert max(ended) - min(ended) >= SPREAD_S - LIST_S


def _lists_told(gateway: Gateway) -> float:
    return sum(gateway.metric("aibrix_gateway_lists_total", kind=kind) for kind in KINDS)


def _goes_on(gateway: Gateway, since_s: float) -> bool:
    """Whether each of its watches has heard something since then: an event, or a whole new list."""
    within_s = time.monotonic() - since_s
    return all(gateway.metric("aibrix_gateway_watch_silence_seconds", kind=kind) < within_s for kind in KINDS)


@pytest.mark.parametrize("how", ["dead", "hung"])
def test_no_request_fails_while_redis_is_away(stage: Stage, how: str):
    outage = stage.without_redis() if how == "dead" else stage.with_hung_redis()
    tally = asked_during(stage, outage, lambda: stage.wait_redis(True), OUTAGE_S if how == "dead" else HUNG_S)
    check(f"Redis {how}", tally)
