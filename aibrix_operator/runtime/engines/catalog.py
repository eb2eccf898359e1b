"""The API's engine names and the kinds behind them."""

from __future__ import annotations

from collections.abc import Mapping

from aibrix_operator.runtime.engines.kind import EngineKind
from aibrix_operator.runtime.engines.sglang import Sglang
from aibrix_operator.runtime.engines.vllm import Vllm

KINDS: Mapping[str, EngineKind] = {"vllm": Vllm(), "sglang": Sglang()}


class Catalog:
    """Looks kinds up by the name a request gives."""

    def __init__(self, kinds: Mapping[str, EngineKind] = KINDS) -> None:
        self._kinds = kinds

    def named(self, engine: str) -> EngineKind | None:
        """The kind with exactly this name. Flags are checked and sleep is offered only for those."""
        return self._kinds.get(engine)

    def launched_as(self, engine: str) -> EngineKind:
        """The kind whose command line starts it: an unknown name starts vLLM, as the contract has no closed set."""
        return self._kinds.get(engine, self._kinds["vllm"])


def model_source(artifact_url: str) -> str:
    """What an engine loads: a path or name as it is, of a URL all behind ``://`` (a repository id for hf://)."""
    scheme, separator, rest = artifact_url.partition("://")
    return rest if separator else scheme


def environment(own: Mapping[str, str], ipc_name: str, kv_segment_dir: str) -> dict[str, str]:
    """An engine's environment: ours, and what switches kvcached on with a segment of the engine's own.

    Without a name of its own kvcached would derive one from the process group, and limits would miss it. SGLang's
    health check generates a token and answers after a second at the earliest, which no probe of ours waits for.
    """
    theirs = {
        **own,
        "ENABLE_KVCACHED": "true",
        "KVCACHED_AUTOPATCH": "1",
        "KVCACHED_IPC_NAME": ipc_name,
        "AIBRIX_KV_SEGMENT_DIR": kv_segment_dir,
    }
    theirs.setdefault("VLLM_SERVER_DEV_MODE", "1")
    theirs.setdefault("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "false")
    return theirs
