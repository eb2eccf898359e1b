"""The five calls that change an engine. Each runs under the fleet's operation lock; its errors say what to answer.

Each may carry the term of the operator that asks, and then raises ``StaleTermError`` for a former leader's.

Slow parts (the engine's own sleep and wake, a locked segment, NVML) are awaited, so a snapshot never waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aibrix_operator.api.term import Term
from aibrix_operator.runtime import footprint, kv_segment, lifecycle, weight_cache
from aibrix_operator.runtime.counters import Result
from aibrix_operator.runtime.engines.door import EngineCallError
from aibrix_operator.runtime.engines.kind import EngineKind, Waking
from aibrix_operator.runtime.fleet import Fleet
from aibrix_operator.runtime.launcher import LaunchError, Life
from aibrix_operator.runtime.lifecycle import Order
from aibrix_operator.runtime.operations import Action
from aibrix_operator.runtime.records import EngineProcess, EngineRecord, merge_args, new_record
from aibrix_operator.runtime.registry import RegistryError
from aibrix_operator.runtime_api.wire import (
    ActivateRequest,
    ActivateResponse,
    DeactivateRequest,
    EnginePhase,
    KVLimitRequest,
    OperationResponse,
    SleepRequest,
    WakeRequest,
)

logger = logging.getLogger(__name__)


class ModelUnknownError(Exception):
    """No such engine. Answered with 404."""

    def __init__(self, model_name: str) -> None:
        super().__init__(f"model {model_name!r} is not active")


class NotSupportedError(Exception):
    """The engine kind cannot do this. Answered with 409."""


class BudgetExhaustedError(Exception):
    """The engine failed for good and must be deactivated first. Answered with 500."""


class StopFailedError(Exception):
    """The engine could not be signalled. Answered with a bare 500: it may or may not be stopping."""


@dataclass(slots=True)
class _Attempt:
    """One sleep or wake under way: how it ended, as far as is known."""

    result: Result = Result.FAILED
    started_s: float = field(default_factory=time.perf_counter)


class MemoryNotBackError(EngineCallError):
    """The engine calls itself awake and holds no more than it held asleep."""


class Controls:
    """What callers may do to the engines."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._wakings: dict[str, tuple[EngineProcess | None, Waking]] = {}
        """Model name → a waking that failed midway, and the process that it concerns."""

    async def activate(self, request: ActivateRequest, term: Term | None = None) -> ActivateResponse:
        """Start a model's engine, or find it there: idempotent by model name, whatever else the request says.

        The intent is in the registry before the process exists, so that a crash in between starts it again and never
        leaves an engine that nobody knows.
        """
        fleet = self._fleet
        async with fleet.operation(term):
            await self._check_args(request)
            record = fleet.records.get(request.model_name)
            if record is None:
                record = await self._start(request)
            elif record.phase is EnginePhase.FAILED:
                raise BudgetExhaustedError(
                    f"model {request.model_name!r} exhausted its local restart budget; "
                    "deactivate it before activating again"
                )
        return ActivateResponse(model_name=record.model_name, port=record.port, ipc_name=record.ipc_name)

    async def _check_args(self, request: ActivateRequest) -> None:
        kind = self._fleet.kinds.named(request.engine)
        reading = await asyncio.to_thread(self._fleet.nvml.read)
        if kind is not None:
            given = None if request.engine_config is None else request.engine_config.args
            kind.check_args(merge_args(given, request.additional_config), len(reading.accelerators))

    async def _start(self, request: ActivateRequest) -> EngineRecord:
        fleet = self._fleet
        record = new_record(request, request.port or fleet.pick_port(), fleet.clock())
        fleet.put(record)
        try:
            await fleet.save()
            record = fleet.launch(record)
        except (RegistryError, LaunchError):
            fleet.drop(record.model_name)
            await fleet.save_or_retry()
            raise
        fleet.put(record)
        await fleet.save_or_retry()
        cache_dir = fleet.settings.weight_cache_dir
        await asyncio.to_thread(weight_cache.write_marker, cache_dir, record.model_name, record.artifact_url)
        return record

    async def deactivate(self, request: DeactivateRequest, term: Term | None = None) -> None:
        """Stop an engine. Its record stays until process and group are gone. Raises ``StopFailedError``."""
        fleet = self._fleet
        async with fleet.operation(term):
            record = fleet.records.get(request.model_name)
            if record is None:
                return
            is_gone = fleet.launcher.look(record.process) is Life.GONE
            step = lifecycle.stop_asked(record, fleet.clock(), is_gone=is_gone)
            if step.order is Order.DROP:
                fleet.drop(record.model_name)
                await fleet.save_or_retry()
                return
            stopping = fleet.signal(step.record, Order.END_GROUP)
            fleet.put(stopping)
            await fleet.save_or_retry()
            if stopping != step.record:
                raise StopFailedError(f"model {record.model_name!r}: {stopping.last_error}")

    async def set_kv_limit(self, request: KVLimitRequest, term: Term | None = None) -> OperationResponse:
        """Write a limit into the engine's segment, in any phase. Raises ``SegmentLockedError`` or OSError.

        Without a segment the answer is still "applied": the caller has to read the limit back anyway.
        """
        fleet = self._fleet
        name = request.model_name
        async with fleet.operation(term):
            record = self._record(name)
            if fleet.memory.is_done(name, Action.KV_LIMIT, request.operation_id):
                fleet.counters.kv_limits[name, Result.SKIPPED] += 1
                return _operation(record, request.operation_id, applied=False)
            fleet.counters.kv_limit_requested_bytes[name] = request.limit_bytes
            try:
                is_written = await kv_segment.write_limit(
                    fleet.settings.kv_segment_dir, record.ipc_name, request.limit_bytes
                )
            except (kv_segment.SegmentLockedError, OSError):
                fleet.counters.kv_limits[name, Result.FAILED] += 1
                raise
            if is_written:
                fleet.counters.kv_limit_applied_bytes[name] = request.limit_bytes
            else:
                logger.warning("engine %s has no KV segment %s, so no limit was set", name, record.ipc_name)
            fleet.counters.kv_limits[name, Result.APPLIED] += 1
            fleet.memory.remember(name, Action.KV_LIMIT, request.operation_id)
            return _operation(record, request.operation_id, applied=True)

    async def sleep(self, request: SleepRequest, term: Term | None = None) -> OperationResponse:
        """Put an engine to sleep and measure what it still holds. Raises ``EngineCallError``, ``SleepRefusedError``.

        The operation lock keeps every other sleep out of the time between the two readings.
        """
        fleet = self._fleet
        async with fleet.operation(term), self._counted(request.model_name, Action.SLEEP) as attempt:
            record = self._record(request.model_name)
            kind = self._kind_that_sleeps(record, Action.SLEEP)
            if self._is_needless(record, Action.SLEEP, request.operation_id, record.phase is EnginePhase.SLEEPING):
                attempt.result = Result.SKIPPED
                return _operation(record, request.operation_id, applied=False)
            before = await asyncio.to_thread(fleet.nvml.read)
            own = fleet.owned_pids(record, frozenset(before.held_bytes))
            await kind.sleep(fleet.door(record), record.model_name, request.level)
            after = await asyncio.to_thread(fleet.nvml.read)
            own |= fleet.owned_pids(record, frozenset(after.held_bytes))
            held_bytes = footprint.sleeping_bytes(own, before.held_bytes, after.held_bytes)
            if held_bytes is None:
                logger.warning("engine %s sleeps, and what it holds could not be told", record.model_name)
            self._wakings.pop(record.model_name, None)
            record = lifecycle.slept(record, held_bytes, fleet.clock())
            fleet.put(record)
            fleet.memory.remember(record.model_name, Action.SLEEP, request.operation_id)
            attempt.result = Result.APPLIED
            await fleet.save_or_retry()
            return _operation(record, request.operation_id, applied=True)

    async def wake(self, request: WakeRequest, term: Term | None = None) -> OperationResponse:
        """Wake an engine and have it proved. Raises ``EngineCallError``; it then still counts as asleep."""
        fleet = self._fleet
        async with fleet.operation(term), self._counted(request.model_name, Action.WAKE) as attempt:
            record = self._record(request.model_name)
            kind = self._kind_that_sleeps(record, Action.WAKE)
            if self._is_needless(record, Action.WAKE, request.operation_id, record.phase is not EnginePhase.SLEEPING):
                attempt.result = Result.SKIPPED
                return _operation(record, request.operation_id, applied=False)
            try:
                await kind.wake(fleet.door(record), self._waking(record))
                await self._see_memory_back(record)
            except EngineCallError as error:
                # It may hold more now than asleep, unless that was just measured.
                if not isinstance(error, MemoryNotBackError):
                    fleet.put(lifecycle.wake_failed(record))
                await fleet.save_or_retry()
                raise
            del self._wakings[record.model_name]
            record = lifecycle.woke(record, fleet.clock())
            fleet.put(record)
            fleet.memory.remember(record.model_name, Action.WAKE, request.operation_id)
            attempt.result = Result.APPLIED
            await fleet.save_or_retry()
            return _operation(record, request.operation_id, applied=True)

    def _waking(self, record: EngineRecord) -> Waking:
        """How far this process has come awake: a call is not repeated to an engine that it would end."""
        self._wakings = {name: entry for name, entry in self._wakings.items() if name in self._fleet.records}
        process, waking = self._wakings.get(record.model_name, (None, Waking()))
        if process != record.process:
            waking = Waking()
        self._wakings[record.model_name] = (record.process, waking)
        return waking

    async def _see_memory_back(self, record: EngineRecord) -> None:
        """Raise ``MemoryNotBackError`` when NVML shows that the engine holds what it held asleep."""
        reading = await asyncio.to_thread(self._fleet.nvml.read)
        is_back = self._fleet.is_memory_back(record, reading)
        if is_back is None:
            logger.info("engine %s is awake by its own word; its memory cannot be attributed", record.model_name)
        elif not is_back:
            held = record.sleeping_footprint_bytes
            raise MemoryNotBackError(f"it says that it is awake and holds no more than the {held} bytes of its sleep")

    def _record(self, model_name: str) -> EngineRecord:
        record = self._fleet.records.get(model_name)
        if record is None:
            raise ModelUnknownError(model_name)
        return record

    def _kind_that_sleeps(self, record: EngineRecord, action: Action) -> EngineKind:
        kind = self._fleet.kinds.named(record.engine)
        if kind is None or not kind.can_sleep:
            raise NotSupportedError(f"{action} is unsupported for engine {record.engine!r}")
        return kind

    def _is_needless(self, record: EngineRecord, action: Action, operation_id: str, is_there: bool) -> bool:
        """Whether nothing is to be done: the operation was done before, or the engine is where it should go."""
        memory = self._fleet.memory
        if memory.is_done(record.model_name, action, operation_id):
            return True
        if is_there:
            memory.remember(record.model_name, action, operation_id)
        return is_there

    @asynccontextmanager
    async def _counted(self, model_name: str, action: Action) -> AsyncIterator[_Attempt]:
        """Count how the sleep or wake ended and how long it took. Calls for unknown models count nowhere."""
        attempt = _Attempt()
        is_known = model_name in self._fleet.records
        try:
            yield attempt
        finally:
            if is_known:
                duration_s = time.perf_counter() - attempt.started_s
                self._fleet.counters.lifecycle_ended(model_name, action, attempt.result, duration_s)


def _operation(record: EngineRecord, operation_id: str, *, applied: bool) -> OperationResponse:
    return OperationResponse(
        model_name=record.model_name, operation_id=operation_id, applied=applied, phase=record.phase
    )
