"""A simulated sidecar: one Pod's cards and engines, and the calls of its API answered by the documented rules.

In memory and in virtual time: engines boot, map KV and sleep when told. What a test wants to go wrong it sets on the
runtime: a limit that does not take, a call that hangs, an answer that is lost.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from aibrix_operator.runtime.fence import Fence
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Done, NotSent, Outcome, Refused, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.store import EPOCH, wall

RESTARTS = 5
LOOK_S = 1.0
"""How soon the change feed notices what a test did to an engine by setting its fields."""
_DEAD = frozenset({EnginePhase.FAILED, EnginePhase.RESTARTING})
_TIMED = frozenset({EnginePhase.BOOTING, EnginePhase.RESTARTING, EnginePhase.STOPPING})
Call: TypeAlias = tuple[str, str, int, str]
"""(action, model, bytes or 0, operation id or "")."""
Result: TypeAlias = Refused | NotSent | Unknown


@dataclass(frozen=True, slots=True)
class Later:
    """The call arrives (once more) after ``seconds``; nobody hears what becomes of it."""

    seconds: float


@dataclass
class SimulatedEngine:
    """One engine. Tests set what the outside would: requests, mapped KV, death."""

    model: str
    request: wire.ActivateRequest
    port: int
    limit_bytes: int
    """Limit in force; -1 before its segment exists."""
    boots_until_s: float
    phase: EnginePhase = EnginePhase.BOOTING
    mapped_bytes: int = 0
    running: int = 0
    waiting: int = 0
    finished: int = 0
    metrics_observed: bool = True
    can_sleep: bool | None = None
    """What its sidecar says of it; None: nothing, as upstream's."""
    is_ready_early: bool = False
    """It answers its health check while its phase is still booting."""
    restart_count: int = 0
    last_error: str | None = None
    sleeping_footprint_bytes: int | None = None
    since: float = 0.0
    operations: set[str] = field(default_factory=set)
    """Ids of the operations that were carried out; a new process of the engine does not forget them."""
    told: tuple[Hashable, wire.ModelState] | None = field(default=None, repr=False, compare=False)
    """What its sidecar said of it last, and from what: most readings tell of nothing new."""


class _Look:
    """One wait of the change feed. It looks each second all day long, and few looks are worth a turn of its task."""

    def __init__(self, is_over: Callable[[], bool], next_s: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over, self._next_s = is_over, next_s
        self.is_worth_it: asyncio.Future[None] = self._loop.create_future()
        self._wait()

    def _wait(self) -> None:
        self._timer: asyncio.Handle = self._loop.call_at(self._next_s(), self._look)

    def _look(self) -> None:
        if self._is_over():
            self.now()
        else:  # once all that is due at this moment has happened, as the task would
            self._timer = self._loop.call_soon(self._wait)

    def now(self) -> None:
        """Something was touched."""
        self._timer.cancel()
        if not self.is_worth_it.done():
            self.is_worth_it.set_result(None)

    def end(self) -> None:
        """Nobody waits any more."""
        self._timer.cancel()


@dataclass
class SimulatedRuntime:
    """The sidecar of one Pod."""

    usable_bytes: tuple[int, ...]
    """Per GPU; a negative size: cannot be measured now."""
    boot_s: float = 1.0
    wake_s: float = 1.0
    asleep_bytes: int | None = 300 * 2**20
    """What an engine holds asleep, as measured; None: not attributable."""
    stop_s: float = 0.0
    """How long a stopped engine takes to exit."""
    cached_artifacts: tuple[str, ...] = ()
    engines: dict[str, SimulatedEngine] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    """Every call that changes something, in the order it arrived."""
    snapshots: int = 0
    before_call: Callable[[Call], Awaitable[Result | Later | None]] | None = None
    """Runs before a call is carried out; a result is answered instead of doing it, or before (``Later``)."""
    after_call: Callable[[Call], Result | Later | None] | None = None
    """Runs after a call was carried out; a result hides that it was, and ``Later`` does it once more."""
    before_snapshot: Callable[[], Awaitable[Result | None]] | None = None
    ignores_limits: bool = False
    """Limit writes are answered as done and change nothing."""
    can_sleep: bool | None = None
    """Whether it says of its engines that they can sleep; None: it does not say, as upstream's."""
    look_s: float = LOOK_S
    """How soon its change feed notices what somebody did to an engine by setting its fields."""
    is_full: bool = False
    """Somebody else holds all free memory of its cards: what boots there dies."""
    has_feed: bool = True
    """Whether it offers the change feed; upstream's does not."""
    clock_off_s: float = 0.0
    """How far its node's wall clock is off."""
    fence: Fence = field(default_factory=Fence)
    process: int = 1
    """Which process of the sidecar this is."""
    _ports: itertools.count[int] = field(default_factory=lambda: itertools.count(20000))
    _seen: Hashable = None
    _count: int = 0
    _looks: list[_Look] = field(default_factory=list)

    def version(self) -> str:
        """The change feed's version now."""
        self._advance()
        seen = tuple(
            (
                e.model,
                e.port,
                e.phase,
                e.since,
                e.restart_count,
                e.last_error,
                e.limit_bytes,
                e.sleeping_footprint_bytes,
            )
            for e in self.engines.values()
        )
        if seen != self._seen:
            self._seen = seen
            self._count += 1
        return f"{self.process}-{self._count}"

    async def has_waited(self, since: str, timeout_s: float) -> bool:
        """Wait until the version is another or the time is over; False when the sidecar ended meanwhile."""
        loop = asyncio.get_running_loop()
        process, ends_s = self.process, loop.time() + timeout_s

        def is_over() -> bool:
            return self.process != process or self.version() != since or loop.time() >= ends_s

        def next_look_s() -> float:
            now_s = loop.time()
            timed = (e.boots_until_s for e in self.engines.values() if e.phase in _TIMED and e.boots_until_s > now_s)
            return min(ends_s, now_s + self.look_s, *timed)

        while not is_over():
            look = _Look(is_over, next_look_s)
            self._looks.append(look)
            try:
                await look.is_worth_it
            finally:
                look.end()
                self._looks.remove(look)
        return self.process == process

    def restart_sidecar(self) -> None:
        """The sidecar's process ends and another takes over; the engines live on."""
        self.process += 1
        self._touch()

    def _touch(self) -> None:
        """Wake who waits for a change."""
        for look in self._looks:
            look.now()

    def _advance(self) -> None:
        """Engines whose time is over move on."""
        now_s = asyncio.get_running_loop().time()
        for model, engine in list(self.engines.items()):
            if engine.phase is EnginePhase.RESTARTING and now_s >= engine.boots_until_s:
                self._boot_again(engine)
            if engine.phase is EnginePhase.BOOTING and now_s >= engine.boots_until_s and self.is_full:
                self._die_of_want(engine)
            elif engine.phase is EnginePhase.BOOTING and now_s >= engine.boots_until_s:
                engine.phase, engine.since = EnginePhase.ACTIVE, engine.boots_until_s
            if engine.phase is EnginePhase.STOPPING and now_s >= engine.boots_until_s:
                del self.engines[model]

    def wall(self) -> datetime:
        """Its node's wall clock."""
        return wall() + timedelta(seconds=self.clock_off_s)

    def snapshot(self) -> wire.Snapshot:
        """What the sidecar sees now; engines whose boot time is over turn active."""
        self.snapshots += 1
        self._advance()
        return wire.Snapshot(
            observed_at=self.wall(),
            accelerators=_accelerators(self.usable_bytes),
            models=tuple(_state(e, self.clock_off_s) for e in self.engines.values()),
            cached_artifacts=self.cached_artifacts,
        )

    @property
    def pool_bytes(self) -> int:
        """The limit that an engine comes up with: the whole card. A mock accelerator has no memory, and no segment."""
        return max(map(abs, self.usable_bytes), default=0) or -1

    def activate(self, request: wire.ActivateRequest) -> Outcome[wire.ActivateResponse]:
        """Start an engine under the default limit, which is the whole card."""
        engine = self.engines.get(request.model_name)
        if engine is None or engine.phase is EnginePhase.FAILED:
            now_s = asyncio.get_running_loop().time()
            limit = self.pool_bytes
            engine = SimulatedEngine(
                request.model_name,
                request,
                next(self._ports),
                limit,
                now_s + self.boot_s,
                can_sleep=self.can_sleep,
                since=now_s,
            )
            self.engines[request.model_name] = engine
            self.cached_artifacts = tuple(sorted({*self.cached_artifacts, request.artifact_url}))
            self._touch()
        return Done(wire.ActivateResponse(model_name=engine.model, port=engine.port))

    def deactivate(self, model: str) -> Outcome[wire.DeactivateResponse]:
        """Stop an engine; unknown ones are fine. One without a process has nothing that takes time to exit."""
        engine = self.engines.get(model)
        if engine is not None:
            if self.stop_s <= 0 or engine.phase in _DEAD:
                del self.engines[model]
            else:
                now_s = asyncio.get_running_loop().time()
                engine.phase, engine.since, engine.boots_until_s = EnginePhase.STOPPING, now_s, now_s + self.stop_s
            self._touch()
        return Done(wire.DeactivateResponse())

    def set_kv_limit(self, request: wire.KVLimitRequest) -> Outcome[wire.OperationResponse]:
        """Write a limit; without a segment it is answered as done all the same."""
        engine = self.engines.get(request.model_name)
        if engine is None:
            return Refused(f"model '{request.model_name}' is not active", 404)
        is_new = request.operation_id not in engine.operations
        engine.operations.add(request.operation_id)
        if is_new and engine.limit_bytes >= 0 and not self.ignores_limits:
            engine.limit_bytes = request.limit_bytes
            self._touch()
        return _operation(engine, request.operation_id, applied=is_new)

    def seat(self, request: wire.ActivateRequest, limit_bytes: int, **engine: Any) -> SimulatedEngine:
        """An engine that has long been up, with the given fields."""
        seated = SimulatedEngine(request.model_name, request, next(self._ports), limit_bytes, 0.0)
        seated.phase = EnginePhase.ACTIVE
        for name, value in engine.items():
            setattr(seated, name, value)
        self.engines[request.model_name] = seated
        return seated

    def crash(self, model: str, back_after_s: float) -> None:
        """An engine dies and is started again after ``back_after_s``. Its stale segment stays until then."""
        engine, now_s = self.engines[model], asyncio.get_running_loop().time()
        engine.phase, engine.since, engine.boots_until_s = EnginePhase.RESTARTING, now_s, now_s + back_after_s
        engine.running = engine.waiting = 0
        engine.restart_count += 1
        self._touch()

    def _die_of_want(self, engine: SimulatedEngine) -> None:
        """There is no memory for it: it dies, and for good the sixth time."""
        if engine.restart_count >= RESTARTS:
            self.fail(engine.model)
        else:
            self.crash(engine.model, 2.0 ** (engine.restart_count + 1))

    def _boot_again(self, engine: SimulatedEngine) -> None:
        """The new process makes a new segment, under the default limit."""
        engine.phase, engine.since = EnginePhase.BOOTING, engine.boots_until_s
        engine.boots_until_s += self.boot_s
        engine.mapped_bytes, engine.limit_bytes = 0, self.pool_bytes

    def fail(self, model: str, error: str = "the engine ended for the sixth time") -> None:
        """An engine dies for good."""
        engine = self.engines[model]
        engine.phase, engine.since = EnginePhase.FAILED, asyncio.get_running_loop().time()
        engine.last_error, engine.mapped_bytes, engine.running, engine.waiting = error, 0, 0, 0
        self._touch()

    def carry_out_sleep(self, request: wire.SleepRequest) -> Outcome[wire.OperationResponse]:
        """A sleep as the sidecar does it: refused while requests run, done once per operation."""
        engine = self.engines.get(request.model_name)
        if engine is None:
            return Refused(f"model '{request.model_name}' is not active", 404)
        if request.operation_id in engine.operations or engine.phase is EnginePhase.SLEEPING:
            return _operation(engine, request.operation_id, applied=False)
        if engine.running + engine.waiting:
            return Refused(f"model {engine.model} is still serving requests, so it is not put to sleep", 409)
        if engine.phase is not EnginePhase.ACTIVE:
            return Unknown(f"the engine of model {engine.model} did not answer")
        engine.operations.add(request.operation_id)
        self.sleep(engine.model, self.asleep_bytes)
        return _operation(engine, request.operation_id)

    def carry_out_wake(self, request: wire.WakeRequest) -> Outcome[wire.OperationResponse]:
        """A wake as the sidecar does it: the engine boots for ``wake_s``; done once per operation."""
        engine = self.engines.get(request.model_name)
        if engine is None:
            return Refused(f"model '{request.model_name}' is not active", 404)
        if request.operation_id in engine.operations or engine.phase is not EnginePhase.SLEEPING:
            return _operation(engine, request.operation_id, applied=False)
        engine.operations.add(request.operation_id)
        self.wake(engine.model)
        engine.phase, engine.boots_until_s = EnginePhase.BOOTING, engine.since + self.wake_s
        return _operation(engine, request.operation_id)

    def sleep(self, model: str, asleep_bytes: int | None = None) -> None:
        """Put an engine to sleep as a call past the operator would."""
        engine = self.engines[model]
        engine.phase, engine.mapped_bytes, engine.sleeping_footprint_bytes = EnginePhase.SLEEPING, 0, asleep_bytes
        engine.since = asyncio.get_running_loop().time()
        self._touch()

    def wake(self, model: str) -> None:
        """Wake an engine as a call past the operator would."""
        engine = self.engines[model]
        engine.phase, engine.sleeping_footprint_bytes = EnginePhase.ACTIVE, None
        engine.since = asyncio.get_running_loop().time()
        self._touch()


def _operation(engine: SimulatedEngine, operation_id: str, applied: bool = True) -> Done[wire.OperationResponse]:
    answer = wire.OperationResponse(
        model_name=engine.model, operation_id=operation_id, applied=applied, phase=engine.phase
    )
    return Done(answer)


@functools.lru_cache(maxsize=1024)
def _accelerators(usable_bytes: tuple[int, ...]) -> tuple[wire.Accelerator, ...]:
    return tuple(
        wire.Accelerator(id=f"GPU-{n}", hbm_total_bytes=abs(u), hbm_free_bytes=max(u, 0), hbm_usable_bytes=u)
        for n, u in enumerate(usable_bytes)
    )


def _state(engine: SimulatedEngine, clock_off_s: float) -> wire.ModelState:
    e = engine
    seen = (
        *(e.model, e.request, e.port, e.limit_bytes, e.phase, e.mapped_bytes, e.running, e.waiting, e.finished),
        *(e.metrics_observed, e.can_sleep, e.is_ready_early, e.restart_count, e.last_error),
        *(e.sleeping_footprint_bytes, e.since, clock_off_s),
    )
    if engine.told is None or engine.told[0] != seen:
        engine.told = seen, _state_now(engine, clock_off_s)
    return engine.told[1]


def _state_now(engine: SimulatedEngine, clock_off_s: float) -> wire.ModelState:
    is_active = engine.phase is EnginePhase.ACTIVE
    observed = is_active and engine.metrics_observed
    return wire.ModelState(
        model_name=engine.model,
        artifact_url=engine.request.artifact_url,
        claim_ref=engine.request.claim_ref,
        port=engine.port,
        ipc_name=engine.request.ipc_name or "",
        phase=engine.phase,
        ready=is_active or (engine.is_ready_early and engine.phase is EnginePhase.BOOTING),
        alive=engine.phase not in _DEAD,
        restart_count=engine.restart_count,
        last_error=engine.last_error,
        last_transition=EPOCH + timedelta(seconds=engine.since + clock_off_s),
        kv_used_bytes=engine.mapped_bytes if engine.limit_bytes >= 0 else -1,
        kv_capacity_bytes=engine.limit_bytes,
        sleeping_footprint_bytes=engine.sleeping_footprint_bytes,
        request_metrics_observed=observed,
        requests_running=engine.running if observed else 0,
        requests_waiting=engine.waiting if observed else 0,
        request_success_total=engine.finished if observed else None,
        can_sleep=engine.can_sleep,
    )
