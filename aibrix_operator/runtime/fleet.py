"""The engines of one Pod: their records, the file behind them, and the few things that are done to a process.

Records change on the event loop only, and only under ``operation_lock``: whoever holds it finds a record as it left it,
however long it waited in between. Readers (snapshot, metrics) take no lock; records are frozen.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp

from aibrix_operator.api.term import Term
from aibrix_operator.runtime import footprint, lifecycle, procfs
from aibrix_operator.runtime.counters import Counters
from aibrix_operator.runtime.engines import catalog
from aibrix_operator.runtime.engines.door import EngineDoor
from aibrix_operator.runtime.engines.kind import Launch
from aibrix_operator.runtime.fence import Fence
from aibrix_operator.runtime.launcher import Launcher, Life
from aibrix_operator.runtime.lifecycle import Order, Sight
from aibrix_operator.runtime.nvml import GpuReading, Nvml
from aibrix_operator.runtime.operations import OperationMemory
from aibrix_operator.runtime.records import EngineRecord
from aibrix_operator.runtime.registry import EngineRegistry, RegistryError
from aibrix_operator.runtime.settings import RuntimeSettings, SleepMode
from aibrix_operator.runtime_api.wire import EnginePhase

logger = logging.getLogger(__name__)

UNPROBED_PHASES = frozenset({EnginePhase.FAILED, EnginePhase.STOPPING})
"""Phases in which nothing that an engine says would decide anything."""

SETTLED_PHASES = frozenset({EnginePhase.ACTIVE, EnginePhase.SLEEPING})
ASKED_EVERY = timedelta(seconds=5)
"""How often an engine in a settled phase is asked whether it sleeps: it logs every such question."""


class NoFreePortError(Exception):
    """Every engine port is taken. Answered with 500."""


def wall_clock() -> datetime:
    """Now, in UTC. Stored times must mean the same to the next sidecar, so the clock is the wall's."""
    return datetime.now(UTC)


class Fleet:
    """All engines of this Pod. One per sidecar."""

    def __init__(
        self,
        settings: RuntimeSettings,
        session: aiohttp.ClientSession,
        *,
        clock: Callable[[], datetime] = wall_clock,
        kinds: catalog.Catalog | None = None,
    ) -> None:
        """``session`` is for calls to engines and stays the caller's to close."""
        self.settings = settings
        self.clock = clock
        self.kinds = kinds or catalog.Catalog()
        self.nvml = Nvml()
        self.launcher = Launcher()
        self.memory = OperationMemory()
        self.counters = Counters()
        self.fence = Fence()
        self.operation_lock = asyncio.Lock()
        self._save_lock = asyncio.Lock()
        self._records: dict[str, EngineRecord] = {}
        self._asked_at: dict[str, datetime] = {}
        """Model name → when its engine was last asked whether it sleeps."""
        self.on_change: Callable[[], None] = _tell_nobody
        """Called when a record came, changed or went."""
        self._registry = EngineRegistry(settings.engine_registry_path)
        self._is_unsaved = False
        self._session = session

    @property
    def records(self) -> Mapping[str, EngineRecord]:
        """model name → record, in the order in which they came."""
        return self._records

    @property
    def stop_grace(self) -> timedelta:
        """How long a stopping engine may take."""
        return timedelta(seconds=self.settings.engine_stop_grace_seconds)

    def put(self, record: EngineRecord) -> None:
        """Take a record over. Under ``operation_lock``."""
        before = self._records.get(record.model_name)
        if before == record:
            return
        if record.phase is EnginePhase.FAILED and before is not None and before.phase is not EnginePhase.FAILED:
            self.counters.budgets_exhausted[record.model_name] += 1
        if before is None or before.phase is not record.phase:
            logger.info("engine %s is %s%s", record.model_name, record.phase, _because(record))
        self._records[record.model_name] = record
        self._is_unsaved = True
        self.on_change()

    def drop(self, model_name: str) -> None:
        """Forget an engine and what was remembered for it. Under ``operation_lock``."""
        if self._records.pop(model_name, None) is not None:
            logger.info("engine %s is gone", model_name)
            self._is_unsaved = True
            self.on_change()
        self._asked_at.pop(model_name, None)
        self.memory.forget(model_name)
        self.counters.forget_gauges(model_name)

    async def save(self) -> None:
        """Write the registry if it changed. Raises ``RegistryError``; the change then waits for the next call."""
        async with self._save_lock:
            if not self._is_unsaved:
                return
            self._is_unsaved = False  # before the write, during which more may change
            try:
                await asyncio.to_thread(self._registry.save, tuple(self._records.values()), self.fence.highest)
            except BaseException:
                self._is_unsaved = True
                raise

    async def save_or_retry(self) -> None:
        """Write the registry; when that fails, the supervisor's next tick tries again."""
        try:
            await self.save()
        except RegistryError as error:
            logger.error("%s; it is tried again in a second", error)

    async def stored(self) -> tuple[tuple[EngineRecord, ...], int]:
        """The records that the last sidecar left, and how many entries were none. Its fence is taken over."""
        stored = await asyncio.to_thread(self._registry.load)
        self.fence.hear_of(stored.operator_term)
        return stored.records, stored.invalid

    @asynccontextmanager
    async def operation(self, term: Term | None) -> AsyncIterator[None]:
        """One change asked for in an operator's ``term``, under the operation lock. Raises ``StaleTermError``.

        The term is looked at once the lock is held: a later one may have come while the call waited for it.
        """
        async with self.operation_lock:
            if self.fence.admit(term):
                await self._store_term()
            yield

    async def hear_of(self, term: Term | None) -> None:
        """A call that changes nothing came from ``term``. Waits for no operation."""
        if self.fence.hear_of(term):
            await self._store_term()

    async def _store_term(self) -> None:
        self._is_unsaved = True
        await self.save_or_retry()

    def door(self, record: EngineRecord) -> EngineDoor:
        """Where the engine is called."""
        return EngineDoor(self._session, self.settings.probe_host, record.port)

    async def sight(self, record: EngineRecord) -> Sight:
        """What can be seen of the engine's processes now, with what the engine says where it matters.

        Its word on whether it sleeps wins over the record: somebody may have called it directly. A health check alone
        proves nothing of a sleeper, since vLLM's answers 200 asleep.
        """
        life = self.launcher.look(record.process)
        if life is not Life.RUNNING:
            return Sight.REMAINS if life is Life.REMAINS else Sight.GONE
        if record.phase in UNPROBED_PHASES:
            return Sight.UNREADY
        if record.phase is EnginePhase.SLEEPING:
            word = await self._word(record)
            if word is not False or not await self._may_be_awake(record):
                return Sight.ASLEEP if word else Sight.UNREADY
            return Sight.READY
        if not await self.door(record).is_ready():
            return Sight.UNREADY
        return Sight.ASLEEP if await self._word(record) else Sight.READY

    async def _word(self, record: EngineRecord) -> bool | None:
        """Whether the engine says that it sleeps; None without an answer, and when it was asked a moment ago."""
        now, kind = self.clock(), self.kinds.named(record.engine)
        asked_at = self._asked_at.get(record.model_name)
        is_asked_often = record.phase in SETTLED_PHASES and asked_at is not None and now - asked_at < ASKED_EVERY
        if kind is None or not kind.can_sleep or is_asked_often:
            return None
        self._asked_at[record.model_name] = now
        return await kind.is_asleep(self.door(record))

    async def _may_be_awake(self, record: EngineRecord) -> bool:
        """Whether a sleeper that calls itself awake serves, and its memory does not say otherwise."""
        if not await self.door(record).is_ready():
            return False
        return self.is_memory_back(record, await asyncio.to_thread(self.nvml.read)) is not False

    def is_memory_back(self, record: EngineRecord, reading: GpuReading) -> bool | None:
        """Whether a sleeper holds more than it did asleep; None when that cannot be attributed."""
        own = self.owned_pids(record, frozenset(reading.held_bytes))
        return footprint.is_back(own, reading.held_bytes, record.sleeping_footprint_bytes)

    def can_sleep(self, record: EngineRecord) -> bool:
        """Whether we put such an engine to sleep and wake it."""
        kind = self.kinds.named(record.engine)
        return kind is not None and kind.can_sleep and self.settings.engine_sleep_mode is not SleepMode.OFF

    def launch(self, record: EngineRecord) -> EngineRecord:
        """Start the engine's process. Raises ``LaunchError``."""
        settings = self.settings
        command = self.kinds.launched_as(record.engine).command(
            Launch(
                python=settings.engine_python,
                model=catalog.model_source(record.artifact_url),
                served_name=record.model_name,
                host=settings.engine_host,
                port=record.port,
                can_sleep=self._starts_able_to_sleep(),
                args=record.command_args,
            )
        )
        environment = catalog.environment(os.environ, record.ipc_name, str(settings.kv_segment_dir))
        process = self.launcher.launch(command, environment)
        logger.info("engine %s starts on port %d as process %d", record.model_name, record.port, process.pid)
        return lifecycle.launched(record, process, self.clock())

    def _starts_able_to_sleep(self) -> bool:
        mode = self.settings.engine_sleep_mode
        return self.nvml.has_seen_a_gpu if mode is SleepMode.AUTO else mode is SleepMode.ON

    def signal(self, record: EngineRecord, order: Order) -> EngineRecord:
        """Carry out ``END_GROUP`` or ``KILL_GROUP``. A signal that cannot be sent is noted in the record."""
        number = signal.SIGKILL if order is Order.KILL_GROUP else signal.SIGTERM
        try:
            self.launcher.signal_group(record.process, number)
        except OSError as error:
            logger.warning("engine %s could not be sent %s: %s", record.model_name, number.name, error)
            if record.phase is EnginePhase.STOPPING:
                return lifecycle.stop_failed(record, str(error), self.clock())
        return record

    def owned_pids(self, record: EngineRecord, pids: frozenset[int]) -> frozenset[int]:
        """Which of these processes are the engine's own."""
        if record.process is None:
            return frozenset()
        root = record.process.pid
        return frozenset(pid for pid in pids if procfs.belongs_to(pid, root))

    def pick_port(self) -> int:
        """The lowest engine port that no record holds and that can be bound. Raises ``NoFreePortError``."""
        taken = {record.port for record in self._records.values()}
        settings = self.settings
        for port in range(settings.engine_port_first, settings.engine_port_last + 1):
            if port not in taken and _can_bind(settings.engine_host, port):
                return port
        raise NoFreePortError("no free port available in agent range")


def _tell_nobody() -> None:
    pass


def _can_bind(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as candidate:
        try:
            candidate.bind((host, port))
        except OSError:
            return False
        return True


def _because(record: EngineRecord) -> str:
    return f": {record.last_error}" if record.last_error else ""
