"""vLLM: its command line, the flags that must fit the Pod, and its sleep mode."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from aibrix_operator.runtime.engines.door import EngineCallError, EngineDoor, EngineStatusError, EngineTimeoutError
from aibrix_operator.runtime.engines.kind import (
    InvalidArgsError,
    Launch,
    MetricNames,
    StillServingError,
    UnverifiableArgsError,
    with_args,
)

MODULE = "vllm.entrypoints.openai.api_server"
SLEEP_FLAG = "--enable-sleep-mode"
GPU_MEMORY_FLAG = "--gpu-memory-utilization"
TENSOR_FLAG = "--tensor-parallel-size"
PIPELINE_FLAG = "--pipeline-parallel-size"
DATA_FLAG = "--data-parallel-size"

DRAIN_DEADLINE_S = 1.0
SLEEP_ATTEMPTS = 3
BETWEEN_ATTEMPTS_S = 1.0

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
        """First close the door to new requests and let those inside finish, then sleep.

        vLLM cuts off the requests that it serves when it falls asleep, and no metric shows one in its first chunk of
        the prompt. An engine that is not done in a second is not idle: it takes requests again. One that knows no
        such pause goes to sleep at once.

        A sleep that answers an error is asked for again: a neighbour that took memory meanwhile makes vLLM's own
        check fail although the weights are off the card already, and the next call finishes it.
        """
        try:
            await door.post("/sleep?level=0&mode=wait", DRAIN_DEADLINE_S)
        except EngineTimeoutError as error:
            await door.post("/wake_up?tags=scheduling")
            raise StillServingError(
                f"model {model_name} is still serving requests, so it is not put to sleep"
            ) from error
        except EngineCallError:
            pass  # the sleep itself tells whether the engine can be reached
        for attempt in range(1, SLEEP_ATTEMPTS + 1):
            try:
                await door.post(f"/sleep?level={level}")
            except EngineStatusError:
                if attempt == SLEEP_ATTEMPTS:
                    raise
                await asyncio.sleep(self.between_attempts_s)
            else:
                return

    async def wake(self, door: EngineDoor) -> None:
        """Take weights and KV back onto the card."""
        await door.post("/wake_up")


def _positive(args: Mapping[str, str], flag: str) -> int:
    try:
        value = int(args.get(flag, "1"))
    except ValueError:
        value = 0
    if value < 1:
        raise InvalidArgsError(f"{flag} must be a positive integer")
    return value
