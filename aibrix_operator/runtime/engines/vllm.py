"""vLLM: its command line, the flags that must fit the Pod, and its sleep mode.

Its health check answers 200 while it sleeps, so only its own word (``/is_sleeping``) counts. What the calls do differs
by version: in 0.32 level 0 is a pause that answers when the running requests are over, and level 1 ends those that
still run; 0.16 answers level 0 at once whatever runs, and counts as asleep after it until a wake without tags.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aibrix_operator.runtime import activity
from aibrix_operator.runtime.engines.door import (
    CONTROL_DEADLINE_S,
    EngineCallError,
    EngineDoor,
    EngineStatusError,
    EngineTimeoutError,
)
from aibrix_operator.runtime.engines.kind import (
    InvalidArgsError,
    Launch,
    MetricNames,
    SleepRefusedError,
    StillServingError,
    UnverifiableArgsError,
    Waking,
    with_args,
)

logger = logging.getLogger(__name__)

MODULE = "vllm.entrypoints.openai.api_server"
SLEEP_FLAG = "--enable-sleep-mode"
GPU_MEMORY_FLAG = "--gpu-memory-utilization"
TENSOR_FLAG = "--tensor-parallel-size"
PIPELINE_FLAG = "--pipeline-parallel-size"
DATA_FLAG = "--data-parallel-size"

PAUSE = "/sleep?level=0&mode=wait"
RESUME = "/wake_up?tags=scheduling"
WAKE = "/wake_up"
STATE = "/is_sleeping"

DRAIN_DEADLINE_S = 1.0
SLEEP_ATTEMPTS = 3
BETWEEN_ATTEMPTS_S = 1.0
STATE_DEADLINE_S = 5.0
WORD_DEADLINE_S = 1.0
UNDO_DEADLINE_S = 5.0
"""Shorter than a wake: an undone sleep has moved little, and the caller waits 60 s for all of it."""

METRICS = MetricNames(
    running=("vllm:num_requests_running", "vllm_num_requests_running"),
    waiting=("vllm:num_requests_waiting", "vllm_num_requests_waiting"),
    succeeded=(
        "vllm:request_success_total",
        "vllm_request_success_total",
        "vllm:num_requests_success_total",
        "vllm_num_requests_success_total",
    ),
)


@dataclass(frozen=True, slots=True)
class Vllm:
    """vLLM with kvcached. ``between_attempts_s`` is the wait before a failed sleep is asked for again."""

    between_attempts_s: float = BETWEEN_ATTEMPTS_S
    can_sleep: bool = True
    metric_names: MetricNames = METRICS

    def command(self, launch: Launch) -> list[str]:
        """The OpenAI server on its own port."""
        line = [launch.python, "-m", MODULE, "--model", launch.model, "--served-model-name", launch.served_name]
        line += ["--host", launch.host, "--port", str(launch.port)]
        if launch.can_sleep:
            line.append(SLEEP_FLAG)
        return with_args(line, launch.args)

    def check_args(self, args: Mapping[str, str], visible_gpus: int) -> None:
        """kvcached divides the card, so vLLM may not; and a warm Pod's engines use exactly its GPUs."""
        if GPU_MEMORY_FLAG in args:
            raise InvalidArgsError(f"{GPU_MEMORY_FLAG} is incompatible with kvcached; use the pool KV policy instead")
        tensor = _positive(args, TENSOR_FLAG)
        pipeline = _positive(args, PIPELINE_FLAG)
        data = _positive(args, DATA_FLAG)
        if data != 1:
            raise InvalidArgsError(f"{DATA_FLAG}={data} is unsupported by fixed topology pools")
        needed = tensor * pipeline
        if visible_gpus == 0 and needed > 1:
            raise UnverifiableArgsError(
                "cannot validate vLLM TP/PP topology because no GPUs are visible to the runtime"
            )
        if visible_gpus not in (0, needed):
            raise InvalidArgsError(f"vLLM parallelism {needed} must equal {visible_gpus} GPU(s) visible to runtime")

    async def sleep(self, door: EngineDoor, model_name: str, level: int) -> None:
        """First close the door to new requests and let those inside finish, then sleep, then ask whether it does.

        vLLM cuts off the requests that it serves when it falls asleep, and no metric shows one in its first chunk of
        the prompt. An engine that is not done in a second is not idle, and one that does not say so is not known to
        be: it takes requests again.
        """
        await self._pause(door, model_name)
        try:
            await self._put_away(door, level)
            if not await _state(door):
                raise EngineCallError(f"/sleep?level={level} was answered, and {STATE} says that it is awake")
        except EngineCallError:
            try:
                await _wake_with(door, (WAKE, WAKE), UNDO_DEADLINE_S)
            except EngineCallError as error:
                logger.warning("engine %s fell half asleep and was not brought back: %s", model_name, error)
            raise

    async def wake(self, door: EngineDoor, waking: Waking) -> None:
        """Take weights and KV back onto the card. Once more when the first call left it asleep."""
        await _wake_with(door, (WAKE, WAKE))

    async def is_asleep(self, door: EngineDoor) -> bool | None:
        """What ``/is_sleeping`` says; it exists in development mode only, as the sleep itself does."""
        try:
            return await _state(door, WORD_DEADLINE_S)
        except EngineCallError:
            return None

    async def _pause(self, door: EngineDoor, model_name: str) -> None:
        """Stop taking requests and have none left. Raises ``SleepRefusedError`` once it takes requests again."""
        refusal: SleepRefusedError
        try:
            await door.post(PAUSE, DRAIN_DEADLINE_S)
            if not await self._is_busy(door, model_name):
                return
            refusal = StillServingError(model_name)
        except EngineTimeoutError:
            refusal = StillServingError(model_name)
        except EngineCallError as error:
            refusal = SleepRefusedError(
                f"model {model_name} did not say that its requests are over, so it is not put to sleep: {error}"
            )
        await _wake_with(door, (RESUME, WAKE), UNDO_DEADLINE_S)
        raise refusal

    async def _is_busy(self, door: EngineDoor, model_name: str) -> bool:
        """Whether requests are seen in a paused engine: some run (0.16 answers the pause at once), or just came."""
        page = await door.metrics_page()
        doing = activity.UNOBSERVED if page is None else activity.parse(page, self.metric_names, model_name)
        return doing.running + doing.waiting > 0

    async def _put_away(self, door: EngineDoor, level: int) -> None:
        """The sleep itself. One that answers an error is asked for again.

        A neighbour that took memory meanwhile makes vLLM's own check fail although the weights are off the card
        already, and the next call finishes it. Its mode leaves a request that came to the paused engine waiting for
        the wake; the default would end it, and no metric shows it.
        """
        for attempt in range(1, SLEEP_ATTEMPTS + 1):
            try:
                await door.post(f"/sleep?level={level}&mode=wait")
            except EngineStatusError:
                if attempt == SLEEP_ATTEMPTS:
                    raise
                await asyncio.sleep(self.between_attempts_s)
            else:
                return


async def _wake_with(door: EngineDoor, calls: Sequence[str], deadline_s: float = CONTROL_DEADLINE_S) -> None:
    """Make these calls until the engine says that it is awake. Raises ``EngineCallError`` when it never does."""
    for call in calls:
        try:
            await door.post(call, deadline_s)
        except EngineStatusError:
            if call == WAKE:  # a version without the tag may refuse it; a wake that fails has failed
                raise
        if not await _state(door):
            return
    raise EngineCallError(f"{calls[-1]} was answered, and {STATE} still says that it is asleep")


async def _state(door: EngineDoor, deadline_s: float = STATE_DEADLINE_S) -> bool:
    """Whether the engine says that it is asleep. Raises ``EngineCallError`` when it says neither."""
    word = (await door.get_object(STATE, deadline_s)).get("is_sleeping")
    if not isinstance(word, bool):
        raise EngineCallError(f"{STATE} answered {word!r}")
    return word


def _positive(args: Mapping[str, str], flag: str) -> int:
    try:
        value = int(args.get(flag, "1"))
    except ValueError:
        value = 0
    if value < 1:
        raise InvalidArgsError(f"{flag} must be a positive integer")
    return value
