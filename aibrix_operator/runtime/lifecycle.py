"""The life of an engine as tables: record and event in, record and orders out. No process, no clock, no I/O.

An engine is ``booting`` until its health check answers, then ``active``; ``sleeping`` between a sleep and a wake. When
its first process dies it is ``restarting`` until the next launch, and ``failed`` for good once five relaunches are
used up: the count is never reset, because an engine that needs a sixth start needs a person. ``stopping`` is left only
by disappearing.

              ready              unready            asleep             remains                 gone
  booting     active             booting            sleeping           restarting, end group   restarting
  active      active             booting            sleeping           restarting, end group   restarting
  sleeping    active             sleeping           sleeping           restarting, end group   restarting
  restarting  active             booting            sleeping           kill group              launch when due
  failed      kill group         kill group         kill group         kill group              failed
  stopping    end or kill group  end or kill group  end or kill group  end or kill group       dropped

The columns are what the supervisor saw of the engine's processes (``Sight``): a sleeper is *ready* only when it says
itself that it is awake. *End* is SIGTERM, *kill* SIGKILL: a group
whose leader died has nothing to finish and is killed at the next look; a stopping engine gets ``stop_grace`` for its
requests. Once all of it is gone the process is forgotten. A relaunch waits for that, since two engines on one port and
one KV segment corrupt both.

The supervisor (``supervisor.py``) and the control calls (``controls.py``) feed events in and carry orders out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from aibrix_operator.runtime.records import EngineProcess, EngineRecord
from aibrix_operator.runtime_api.wire import EnginePhase

RESTART_BUDGET = 5
FIRST_DELAY_S = 2
LONGEST_DELAY_S = 60

EXITED = "engine exited"
BUDGET_EXHAUSTED = f"{EXITED}; restart budget exhausted"
GONE_AT_ADOPTION = "engine was gone when the runtime agent came back"


class Sight(StrEnum):
    """What can be seen of an engine's processes."""

    READY = "ready"
    """The first process runs, answers its health check, and does not say that it is asleep."""
    UNREADY = "unready"
    """The first process runs."""
    ASLEEP = "asleep"
    """The first process runs, and the engine says that it is asleep."""
    REMAINS = "remains"
    """The first process is gone, others of its group are not."""
    GONE = "gone"
    """Nothing of it is left, or nothing that is provably its own."""

    @property
    def is_running(self) -> bool:
        """Whether the first process runs."""
        return self in (Sight.READY, Sight.UNREADY, Sight.ASLEEP)


class Order(StrEnum):
    """What has to be done about the engine's processes or its record."""

    LAUNCH = "launch"
    END_GROUP = "end group"
    KILL_GROUP = "kill group"
    DROP = "drop"


class Adoption(StrEnum):
    """What became of a stored record when the sidecar came back. The values are metric labels."""

    SUCCESS = "success"
    RESTART_SCHEDULED = "restart_scheduled"
    STOPPING = "stopping"
    REMOVED = "removed"
    TERMINAL = "terminal"
    DUPLICATE = "duplicate"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Step:
    """The record after an event, and at most one order. The record of ``DROP`` is the last one."""

    record: EngineRecord
    order: Order | None = None


Rule = Callable[[EngineRecord, datetime, timedelta], Step]


def restart_delay(restart_count: int) -> timedelta:
    """The wait before relaunch number ``restart_count``: 2, 4, 8, 16, 32 s."""
    return timedelta(seconds=min(FIRST_DELAY_S * 2 ** (restart_count - 1), LONGEST_DELAY_S))


def move(record: EngineRecord, phase: EnginePhase, now: datetime) -> EngineRecord:
    """The record in ``phase``. ``last_transition`` moves only when the phase does; a footprint is only for sleepers."""
    if record.phase is phase:
        return record
    footprint = record.sleeping_footprint_bytes if phase is EnginePhase.SLEEPING else None
    return replace(record, phase=phase, last_transition=now, sleeping_footprint_bytes=footprint)


def die(record: EngineRecord, now: datetime, error: str = EXITED) -> EngineRecord:
    """The record after a death: the next relaunch is set, or the budget is spent."""
    if record.restart_count >= RESTART_BUDGET:
        failed = move(record, EnginePhase.FAILED, now)
        return replace(failed, last_error=BUDGET_EXHAUSTED, next_restart_at=None)
    count = record.restart_count + 1
    restarting = move(record, EnginePhase.RESTARTING, now)
    due = now + restart_delay(count)
    return replace(restarting, restart_count=count, last_error=error, next_restart_at=due)


def _serve(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(replace(move(record, EnginePhase.ACTIVE, now), last_error=None, next_restart_at=None))


def _boot(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(replace(move(record, EnginePhase.BOOTING, now), next_restart_at=None))


def _doze(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    """Somebody else put it to sleep, so nobody measured what it holds."""
    return Step(replace(move(record, EnginePhase.SLEEPING, now), next_restart_at=None))


def _stay(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(record)


def _stay_dead(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(replace(record, process=None))


def _die(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(replace(die(record, now), process=None))


def _die_with_remains(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(die(record, now), Order.END_GROUP)


def _kill(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(record, Order.KILL_GROUP)


def _launch_when_due(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    due = record.next_restart_at is None or now >= record.next_restart_at
    return Step(replace(record, process=None), Order.LAUNCH if due else None)


def _end_or_kill(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    overdue = now - record.last_transition >= grace
    return Step(record, Order.KILL_GROUP if overdue else Order.END_GROUP)


def _drop(record: EngineRecord, now: datetime, grace: timedelta) -> Step:
    return Step(record, Order.DROP)


_SERVING: Mapping[Sight, Rule] = {
    Sight.READY: _serve,
    Sight.UNREADY: _boot,
    Sight.ASLEEP: _doze,
    Sight.REMAINS: _die_with_remains,
    Sight.GONE: _die,
}

ON_SIGHT: Mapping[EnginePhase, Mapping[Sight, Rule]] = {
    EnginePhase.BOOTING: _SERVING,
    EnginePhase.ACTIVE: _SERVING,
    EnginePhase.SLEEPING: {**_SERVING, Sight.UNREADY: _stay},
    EnginePhase.RESTARTING: {**_SERVING, Sight.REMAINS: _kill, Sight.GONE: _launch_when_due},
    EnginePhase.FAILED: {**dict.fromkeys(Sight, _kill), Sight.GONE: _stay_dead},
    EnginePhase.STOPPING: {**dict.fromkeys(Sight, _end_or_kill), Sight.GONE: _drop},
}


def saw(record: EngineRecord, sight: Sight, now: datetime, stop_grace: timedelta) -> Step:
    """One look of the supervisor."""
    return ON_SIGHT[record.phase][sight](record, now, stop_grace)


def stop_asked(record: EngineRecord, now: datetime, *, is_gone: bool) -> Step:
    """Someone wants the engine gone. When nothing is left of its processes, it is dropped at once."""
    if is_gone:
        return Step(record, Order.DROP)
    return Step(replace(move(record, EnginePhase.STOPPING, now), next_restart_at=None), Order.END_GROUP)


def stop_failed(record: EngineRecord, error: str, now: datetime) -> EngineRecord:
    """The engine could not be signalled: the record says why and when."""
    return replace(record, last_error=f"stop failed: {error}", last_transition=now)


def launched(record: EngineRecord, process: EngineProcess, now: datetime) -> EngineRecord:
    """A new first process runs, for the first time or again."""
    return replace(move(record, EnginePhase.BOOTING, now), process=process, next_restart_at=None)


def relaunch_failed(record: EngineRecord, error: str, now: datetime) -> EngineRecord:
    """A relaunch that cannot even start a process counts as another death."""
    return replace(die(record, now, f"restart launch failed: {error}"), process=None)


def slept(record: EngineRecord, footprint_bytes: int | None, now: datetime) -> EngineRecord:
    """The engine fell asleep and holds this much; None when that could not be told. One that is to go still goes."""
    if record.phase is EnginePhase.STOPPING:
        return record
    return replace(move(record, EnginePhase.SLEEPING, now), sleeping_footprint_bytes=footprint_bytes)


def woke(record: EngineRecord, now: datetime) -> EngineRecord:
    """The engine was woken. It boots until its health check answers."""
    return move(record, EnginePhase.BOOTING, now)


def wake_failed(record: EngineRecord) -> EngineRecord:
    """It may have taken some memory back, so what it holds asleep is no longer known."""
    return replace(record, sleeping_footprint_bytes=None)


def adopt(record: EngineRecord, sight: Sight, now: datetime, stop_grace: timedelta) -> tuple[Adoption, Step]:
    """What becomes of a stored record when the sidecar comes back and sees this of its engine."""
    if record.phase is EnginePhase.FAILED:
        return Adoption.TERMINAL, saw(record, sight, now, stop_grace)
    if record.phase is EnginePhase.STOPPING:
        return (Adoption.REMOVED if sight is Sight.GONE else Adoption.STOPPING), saw(record, sight, now, stop_grace)
    if sight.is_running:
        return Adoption.SUCCESS, saw(record, sight, now, stop_grace)
    scheduled = record.phase is EnginePhase.RESTARTING and record.next_restart_at is not None
    dead = record if scheduled else die(record, now, GONE_AT_ADOPTION)
    return Adoption.RESTART_SCHEDULED, Step(dead, Order.END_GROUP if sight is Sight.REMAINS else None)
