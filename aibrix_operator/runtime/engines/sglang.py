"""SGLang: its command line and metric names. Its sleep is not known to the contract, so it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aibrix_operator.runtime.engines.door import EngineCallError, EngineDoor
from aibrix_operator.runtime.engines.kind import Launch, MetricNames, with_args

MODULE = "sglang.launch_server"
MEMORY_SAVER_FLAG = "--enable-memory-saver"


METRICS = MetricNames(
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    succeeded=("sglang:num_requests_total",),
)


@dataclass(frozen=True, slots=True)
class Sglang:
    """SGLang with kvcached."""

    can_sleep: bool = False
    metric_names: MetricNames = METRICS

    def command(self, launch: Launch) -> list[str]:
        """The server on its own port."""
        line = [launch.python, "-m", MODULE, "--model-path", launch.model, "--served-model-name", launch.served_name]
        line += ["--host", launch.host, "--port", str(launch.port)]
        if launch.can_sleep:
            line.append(MEMORY_SAVER_FLAG)
        return with_args(line, launch.args)

    def check_args(self, args: Mapping[str, str], visible_gpus: int) -> None:
        """SGLang checks its flags itself at start."""

    async def sleep(self, door: EngineDoor, model_name: str, level: int) -> None:
        """Always refused."""
        raise EngineCallError("SGLang is not put to sleep by this runtime")

    async def wake(self, door: EngineDoor) -> None:
        """Always refused."""
        raise EngineCallError("SGLang is not woken by this runtime")
