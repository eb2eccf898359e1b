"""SGLang: its command line, its metric names, and its memory release, which is its sleep.

Read from the sources of 0.5.6 and 0.5.23. A memory call in the wrong state is not refused but ends the engine:

- releasing while a request runs, releasing twice, and resuming what was not released end the scheduler;
- generating on released memory does too, also for a health check, so the engine stays paused until its memory is back;
- its weights survive only with ``--enable-weights-cpu-backup``; without it a resumed engine answers nonsense with 200.

It has no word for being asleep. What proves it idle is its own cache flush, which its scheduler carries out only when
nothing runs, by the very test that guards the release; what proves it awake is one token generated on request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from aibrix_operator.runtime.engines.door import (
    EngineCallError,
    EngineDoor,
    EngineStatusError,
    EngineTimeoutError,
)
from aibrix_operator.runtime.engines.kind import (
    Launch,
    MetricNames,
    SleepRefusedError,
    StillServingError,
    Waking,
    with_args,
)

logger = logging.getLogger(__name__)

MODULE = "sglang.launch_server"
MEMORY_SAVER_FLAG = "--enable-memory-saver"
WEIGHTS_BACKUP_FLAG = "--enable-weights-cpu-backup"
METRICS_FLAG = "--enable-metrics"

INFO = "/server_info"
FLUSH = "/flush_cache"
PAUSE = "/pause_generation"
CONTINUE = "/continue_generation"
RELEASE = "/release_memory_occupation"
RESUME = "/resume_memory_occupation"
GENERATE_ONE = "/health_generate"

CALL_DEADLINE_S = 5.0
GENERATE_DEADLINE_S = 25.0
"""It gives up by itself after 20 s."""
FLUSH_REFUSED = 400

METRICS = MetricNames(
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    succeeded=("sglang:num_requests_total",),
)


@dataclass(frozen=True, slots=True)
class Sglang:
    """SGLang with kvcached. Both levels of sleep are the same: the weights go to host memory."""

    can_sleep: bool = True
    metric_names: MetricNames = METRICS

    def command(self, launch: Launch) -> list[str]:
        """The server on its own port. Without metrics it could never be seen idle."""
        line = [launch.python, "-m", MODULE, "--model-path", launch.model, "--served-model-name", launch.served_name]
        line += ["--host", launch.host, "--port", str(launch.port)]
        flags = [METRICS_FLAG]
        if launch.can_sleep:
            flags += [MEMORY_SAVER_FLAG, WEIGHTS_BACKUP_FLAG]
        line += [flag for flag in flags if flag not in launch.args]
        return with_args(line, launch.args)

    def check_args(self, args: Mapping[str, str], visible_gpus: int) -> None:
        """SGLang checks its flags itself at start."""

    async def sleep(self, door: EngineDoor, model_name: str, level: int) -> None:
        """Look whether it is idle, close the door, make sure, release.

        The look comes first because a pause freezes what runs. Requests that come later wait at the door until the
        engine is awake again.
        """
        await _check_that_weights_survive(door, model_name)
        await _be_idle(door, model_name)
        try:
            await door.post(PAUSE, CALL_DEADLINE_S, json_body={"mode": "in_place"})
            await _be_idle(door, model_name)
        except (SleepRefusedError, EngineCallError) as error:
            await door.post(CONTINUE, CALL_DEADLINE_S, json_body={})
            if isinstance(error, SleepRefusedError):
                raise
            raise _not_known_idle(model_name, error) from error
        try:
            await door.post(RELEASE, json_body={})
        except EngineCallError as error:
            await _undo(door, model_name, error)
            raise

    async def wake(self, door: EngineDoor, waking: Waking) -> None:
        """Give its memory back once, open the door, and have it generate a token."""
        if not waking.has_memory:
            try:
                await door.post(RESUME, json_body={})
            except EngineTimeoutError:
                waking.has_memory = True  # it takes its calls in order, so this one will be carried out
                raise
            waking.has_memory = True
        await door.post(CONTINUE, CALL_DEADLINE_S, json_body={})
        await door.get(GENERATE_ONE, GENERATE_DEADLINE_S)

    async def is_asleep(self, door: EngineDoor) -> bool | None:
        """It has no word for it."""
        return None


async def _check_that_weights_survive(door: EngineDoor, model_name: str) -> None:
    """Raise ``SleepRefusedError`` for an engine that was started without what a sleep needs.

    Up to 0.5.5 it has no such route, and knows no pause but one that aborts what runs.
    """
    try:
        info = await door.get_object(INFO, CALL_DEADLINE_S)
    except EngineStatusError as error:
        raise SleepRefusedError(
            f"model {model_name} cannot sleep: its engine does not say how it runs: {error}"
        ) from error
    needed = [MEMORY_SAVER_FLAG, WEIGHTS_BACKUP_FLAG]
    if info.get("speculative_algorithm"):
        needed.append("--enable-draft-weights-cpu-backup")
    if missing := [flag for flag in needed if info.get(flag.removeprefix("--").replace("-", "_")) is not True]:
        raise SleepRefusedError(f"model {model_name} cannot sleep: its engine runs without {' '.join(missing)}")


async def _be_idle(door: EngineDoor, model_name: str) -> None:
    """Raise ``StillServingError`` when a request runs, ``SleepRefusedError`` when that cannot be told."""
    try:
        await door.post(FLUSH, CALL_DEADLINE_S)
    except EngineStatusError as error:
        if error.status == FLUSH_REFUSED:
            raise StillServingError(model_name) from error
        raise _not_known_idle(model_name, error) from error


async def _undo(door: EngineDoor, model_name: str, error: EngineCallError) -> None:
    """Bring it back from a release that failed. One that was refused took nothing; one unanswered may yet."""
    try:
        if isinstance(error, EngineTimeoutError):
            await door.post(RESUME, CALL_DEADLINE_S, json_body={})
        await door.post(CONTINUE, CALL_DEADLINE_S, json_body={})
    except EngineCallError as further:
        logger.warning("engine %s fell half asleep and was not brought back: %s", model_name, further)


def _not_known_idle(model_name: str, error: EngineCallError) -> SleepRefusedError:
    return SleepRefusedError(f"model {model_name} is not known to be idle, so it is not put to sleep: {error}")
