"""Asks for sleeping engines: one wake request for a burst of requests, whatever number of gateways it comes through.

The request is an annotation of the engine's Pod, written over exactly the version of the Pod that the gateway has read.
Whoever comes second, here or at another replica, finds the Pod changed and is refused, and so two never write two.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, Counter

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import PODS, Object, Resource
from aibrix_operator.gateway.view import WakeTarget
from aibrix_operator.runtime_api.client import RuntimeClient
from aibrix_operator.runtime_api.outcome import Done
from aibrix_operator.runtime_api.wire import WakeRequest

log = logging.getLogger(__name__)

WRITE_WITHIN_S = 10.0
NOT_AGAIN_FOR_S = 30.0
"""A request that was written is on its way to the cache; after so long it is thought lost."""
AGAIN_AFTER_S = 0.5
"""After a write that was refused or failed; the cache most often shows what was in its way by then."""
RUNTIME_WITHIN_S = 120.0

_Engine: TypeAlias = tuple[str, str, str]
"""Pod UID, claim, model"""


def _nobody_waits(model: str) -> None:
    """Requests are answered at once: the next one asks again."""


class PodWriter(Protocol):
    """What is needed of a :class:`~aibrix_operator.cluster.client.Cluster`."""

    async def patch_metadata(
        self, resource: Resource, namespace: str, name: str, metadata: Mapping[str, Any], resource_version: str
    ) -> Object:
        """Merge ``metadata`` if the object still is at ``resource_version``; else ``errors.Conflict``."""


class Waker:
    """Used within one event loop. What it remembers may be lost: a second request over the same version is refused."""

    def __init__(
        self,
        pods: PodWriter,
        runtimes: RuntimeClient,
        registry: CollectorRegistry,
        *,
        not_asked: Callable[[str], None] = _nobody_waits,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``not_asked`` is told the model whose engine could not be asked for, a moment later: a request that is held
        for it would otherwise wait for another one to come. ``clock`` counts seconds and never goes back; ``wall``
        dates the requests."""
        self._not_asked = not_asked
        self._pods = pods
        self._runtimes = runtimes
        self._clock = clock
        self._wall = wall
        self._in_flight: dict[_Engine, asyncio.Task[bool]] = {}
        self._written: dict[_Engine, tuple[str, float]] = {}
        """Engine → version of its Pod that we wrote over, and when, by ``clock``."""
        self._counted = Counter(
            "aibrix_gateway_wake_requests",
            "Wake requests by what came of them.",
            ("result",),
            registry=registry,
        )

    def wake(self, target: WakeTarget) -> None:
        """A request wants this engine. Returns at once, and does nothing while it has been asked for already."""
        engine = (target.uid, target.claim, target.model)
        if target.already_asked or engine in self._in_flight or self._was_written(engine, target.resource_version):
            return
        work = self._annotate(engine, target) if target.by_request else self._call_runtime(target)
        task = asyncio.get_running_loop().create_task(work, name=f"wake of {target.model}")
        self._in_flight[engine] = task
        task.add_done_callback(partial(self._done, target, engine))

    def _done(self, target: WakeTarget, engine: _Engine, task: asyncio.Task[bool]) -> None:
        self._in_flight.pop(engine, None)
        if not task.cancelled() and not task.result():
            asyncio.get_running_loop().call_later(AGAIN_AFTER_S, self._not_asked, target.model)

    async def close(self) -> None:
        """Let what is under way go."""
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _was_written(self, engine: _Engine, resource_version: str) -> bool:
        """Whether we wrote over this very version lately: the cache has yet to show what became of it.

        A Pod that is seen without the request at another version had it taken back, and gets a new one.
        """
        now_s = self._clock()
        version, written_s = self._written.get(engine, ("", now_s))
        return version == resource_version and now_s - written_s < NOT_AGAIN_FOR_S

    async def _annotate(self, engine: _Engine, target: WakeTarget) -> bool:
        where = names.claim_key(target.namespace, target.pod)
        text = self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"annotations": {names.wake_annotation(target.claim): text}}
        try:
            async with asyncio.timeout(WRITE_WITHIN_S):
                await self._pods.patch_metadata(PODS, target.namespace, target.pod, metadata, target.resource_version)
        except errors.Conflict:
            # Another gateway was first, or the Pod changed otherwise: what the cache shows next decides.
            self._counted.labels("conflict").inc()
            return False
        except (errors.ClusterError, TimeoutError) as error:
            self._counted.labels("failed").inc()
            log.warning("model %s on pod %s could not be asked for: %s", target.model, where, str(error) or "timeout")
            return False
        self._remember(engine, target.resource_version)
        self._counted.labels("written").inc()
        log.info("asked for model %s of claim %s on pod %s", target.model, target.claim, where)
        return True

    def _remember(self, engine: _Engine, resource_version: str) -> None:
        now_s = self._clock()
        for old in [key for key, (_, at_s) in self._written.items() if now_s - at_s >= NOT_AGAIN_FOR_S]:
            del self._written[old]
        self._written[engine] = (resource_version, now_s)

    async def _call_runtime(self, target: WakeTarget) -> bool:
        """An older controller has no such annotation: its runtimes are woken by the gateway itself."""
        operation = f"gateway-wake/{target.uid}/{target.model}/{uuid.uuid4()}"
        request = WakeRequest(model_name=target.model, operation_id=operation)
        outcome = await self._runtimes.wake(target.runtime, request, RUNTIME_WITHIN_S)
        is_done = isinstance(outcome, Done)
        self._counted.labels("runtime" if is_done else "failed").inc()
        if is_done:
            log.info("woke model %s at %s", target.model, target.runtime)
        else:
            log.warning("model %s at %s did not wake: %s", target.model, target.runtime, outcome)
        return is_done
