"""What goes on meanwhile: claims are deleted and made anew, put to sleep and woken, and Pods come and go."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import aiohttp

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Object
from aibrix_operator.sandbox import pool
from bench.chaos.stage import Stage
from bench.soak import stage as staging

PAUSE_S = 4.0
_SETTLES_WITHIN_S = 60.0


class Going:
    """One act every few seconds, until it is cancelled."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.acts: Counter[str] = Counter()
        self._stage = stage
        self._rng = random.Random(seed)

    async def run(self) -> None:
        """Acts are drawn with equal chances, but a Pod goes in one of six."""
        acts = {"claim made anew": self._make_anew, "put to sleep": self._put_to_sleep, "Pod deleted": self._delete_pod}
        while True:
            await asyncio.sleep(PAUSE_S * self._rng.uniform(0.5, 1.5))
            (name,) = self._rng.choices(list(acts), (2.5, 2.5, 1.0))
            if await acts[name]():
                self.acts[name] += 1

    async def _make_anew(self) -> bool:
        name = self._rng.choice(staging.ASKED)
        try:
            await self._stage.cluster.delete(MODEL_CLAIMS, pool.NAMESPACE, name)
            await self._until(lambda: name not in {claim["metadata"]["name"] for claim in self._stage.claims()})
            await self._stage.cluster.create(MODEL_CLAIMS, pool.NAMESPACE, staging.claim_body(name))
        except errors.NotFound:
            return False
        return True

    async def _put_to_sleep(self) -> bool:
        """By hand, with the level that keeps weights in memory. The next request wakes it."""
        name = self._rng.choice(staging.ASKED)
        target = self._stage.target(name)
        if target is None:
            return False
        url = f"http://{target.address}:{names.RUNTIME_PORT}/v1/runtime/models/sleep"
        body = {"model_name": name, "level": 1, "operation_id": f"soak/{time.time_ns()}"}
        try:
            async with self._stage.session.post(url, json=body) as answer:
                return answer.status == 200
        except aiohttp.ClientError:  # its Pod is going
            return False

    async def _delete_pod(self) -> bool:
        """Any but the lasting stream's, and only while all are there."""
        pods = self._stage.ready_pods()
        lasting = self._stage.target(staging.LASTING)
        others = [pod for pod in pods if lasting is None or _name(pod) != lasting.pod]
        if len(pods) < staging.CARDS or lasting is None:
            return False
        chosen = self._rng.choice(sorted(others, key=_name))["metadata"]
        try:
            await self._stage.cluster.delete(PODS, pool.NAMESPACE, chosen["name"], uid=chosen["uid"])
        except (errors.NotFound, errors.Conflict):
            return False
        return True

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_SETTLES_WITHIN_S):
            while not is_so():  # noqa: ASYNC110 - what others' processes do is polled
                await asyncio.sleep(0.1)


def _name(pod: Object) -> str:
    name: str = pod["metadata"]["name"]
    return name
