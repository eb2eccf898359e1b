"""What the sidecar reads from its environment. Each field is one variable: ``AIBRIX_`` and its name in capitals."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

WILDCARD_HOSTS = frozenset({"0.0.0.0", "::", ""})


class SleepMode(StrEnum):
    """Whether engines are started able to sleep."""

    AUTO = "auto"
    """On where NVML shows a GPU; engines refuse to start with the flag on platforms that cannot free memory."""
    ON = "on"
    OFF = "off"


class RuntimeSettings(BaseSettings):
    """All settings of the sidecar. Everything else in the environment is handed on to the engines as it is."""

    model_config = SettingsConfigDict(env_prefix="AIBRIX_", frozen=True, extra="ignore", populate_by_name=True)

    runtime_host: str = "0.0.0.0"
    """Where the API listens. The operator calls it by the Pod's address, so the default is every interface."""
    runtime_port: int = Field(default=8080, ge=1, le=65_535)
    runtime_docs: bool = False
    """Serve ``/docs`` and ``/openapi.json``."""
    runtime_token_file: Path | None = None
    """A file with the bearer token that every call but the two probes must carry. None: no token is asked for."""

    engine_host: str = "0.0.0.0"
    """Where engines listen."""
    engine_port_first: int = Field(default=20_000, ge=1, le=65_535)
    engine_port_last: int = Field(default=20_999, ge=1, le=65_535)
    engine_python: str = sys.executable
    """The interpreter that runs engines: the one with vLLM or SGLang installed."""
    engine_sleep_mode: SleepMode = SleepMode.AUTO
    engine_stop_grace_seconds: float = Field(default=30.0, ge=0)
    """How long a stopping engine may ignore SIGTERM before its process group gets SIGKILL."""
    engine_registry_path: Path = Path("/var/run/aibrix/engines.json")

    adapter_dir: Path = Path("/tmp/aibrix/adapters")
    """Where adapters' files go. The engine's container must see the same folder under the same path."""
    adapter_credentials_dir: Path = Path("/var/run/secrets/aibrix")
    """Secrets that callers may name are mounted here, a folder each."""
    download_dir: Path = Field(default=Path("/tmp/aibrix/models"), validation_alias="DOWNLOADER_LOCAL_DIR")
    inference_engine: Literal["vllm", "sglang"] = Field(default="vllm", validation_alias="INFERENCE_ENGINE")
    """What the engine in the container beside the sidecar is: the one that adapters are loaded into."""
    inference_engine_endpoint: str = Field(
        default="http://localhost:8000", validation_alias="INFERENCE_ENGINE_ENDPOINT"
    )
    inference_engine_api_key: str = Field(default="", validation_alias="INFERENCE_ENGINE_API_KEY", repr=False)

    kv_segment_dir: Path = Path("/dev/shm")
    """Where kvcached keeps its segments. Engines get it in their environment."""
    weight_cache_dir: Path = Path("~/.cache/huggingface")

    @model_validator(mode="after")
    def _ports_in_order(self) -> Self:
        if self.engine_port_first > self.engine_port_last:
            raise ValueError(
                f"the first engine port {self.engine_port_first} is above the last one {self.engine_port_last}"
            )
        return self

    @property
    def probe_host(self) -> str:
        """Where the sidecar itself reaches its engines."""
        return "127.0.0.1" if self.engine_host in WILDCARD_HOSTS else self.engine_host
