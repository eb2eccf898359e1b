"""A fleet worth looking at, played in virtual time, and its page served as an operator serves it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from datetime import UTC, datetime

from simulated import CARD_24, GIB, H20

from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.explain.looking import CannotLook
from aibrix_operator.modelclaim.parse import parse_time
from aibrix_operator.page.server import Address, Page
from aibrix_operator.page.sources import WorldSource
from aibrix_operator.sandbox.control_plane import free_port
from aibrix_operator.sim import loop
from aibrix_operator.sim.store import wall
from aibrix_operator.sim.world import SimulatedCluster

SCOPE = "namespace default"


async def _furnish(cluster):
    """Three H20 and a card of 24 GiB; engines that serve, sleep and have failed, and claims that wait."""
    for number in range(3):
        cluster.add_pod(f"warm-pool-7c9d5f-{number}", H20)
    cluster.add_pod("warm-pool-7c9d5f-small", CARD_24)
    cluster.set_policy(json.dumps({"lifecycle": {"sleepAfterSeconds": 3600}}))
    wanted = (
        ("qwen3-8b", "30Gi", "10Gi"),
        ("llama-8b", "28Gi", "12Gi"),
        ("qwen3-32b", "64Gi", "12Gi"),
        ("gemma-4b", "10Gi", "4Gi"),
        ("phi-4", "30Gi", "6Gi"),
        ("embed-small", "3Gi", "1Gi"),
    )
    for name, footprint, floor in wanted:
        cluster.apply(name, footprint, floor, modelName=name)
        await cluster.run(6)
    for name, running, waiting, mapped in (
        ("qwen3-8b", 7, 2, 9.1),
        ("llama-8b", 3, 0, 4.2),
        ("qwen3-32b", 12, 0, 17.8),
        ("gemma-4b", 1, 0, 0.8),
        ("phi-4", 2, 0, 3.4),
    ):
        engine = _engine(cluster, name)
        engine.running, engine.waiting, engine.mapped_bytes = running, waiting, int(mapped * GIB)
    await cluster.run(10)
    for runtime in cluster.runtimes.by_ip.values():
        if "embed-small" in runtime.engines:
            runtime.sleep("embed-small", runtime.asleep_bytes)
    cluster.apply("deepseek-r1", "620Gi", "40Gi", modelName="deepseek-r1")
    cluster.apply("mistral-24b", "56Gi", "30Gi", modelName="mistral-24b")
    cluster.apply("typo", "30m", "10Gi", modelName="typo")
    await cluster.run(25)


def _engine(cluster, name):
    return next(r.engines[name] for r in cluster.runtimes.by_ip.values() if name in r.engines)


def played(story=_furnish):
    """The look that an operator's page has after ``story``, as if the story had ended now."""

    async def play():
        async with SimulatedCluster() as cluster:
            await story(cluster)
            return await WorldSource(cluster.world).look(), wall()

    look, ended = loop.run(play())
    return _moved(look, datetime.now(UTC) - ended)


def _moved(look, by):
    """The same look with every time of a claim later by ``by``."""

    def condition(c):
        return c.model_copy(update={"last_transition_time": rfc3339(parse_time(c.last_transition_time) + by)})

    def claim(c):
        status = c.status.model_copy(update={"conditions": tuple(map(condition, c.status.conditions))})
        return dataclasses.replace(c, created_at=c.created_at + by, status=status)

    fleets = tuple(dataclasses.replace(f, claims=tuple(map(claim, f.claims))) for f in look.fleets)
    return dataclasses.replace(look, fleets=fleets)


class Shown:
    """A source that shows what it is given."""

    def __init__(self, look=None):
        self.shown = look
        self.looks = 0
        self.error = ""

    async def look(self):
        self.looks += 1
        if self.error:
            raise CannotLook(self.error)
        return self.shown


@contextlib.asynccontextmanager
async def serving(source, **page):
    """The page's address, served until the end of the block."""
    port = free_port()
    served = Page(Address("127.0.0.1", port), source, SCOPE, **page)
    await served.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await served.stop()
