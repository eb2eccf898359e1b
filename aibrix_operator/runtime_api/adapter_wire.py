"""The sidecar's calls about LoRA adapters and downloads, as models: written by the operator, read by the sidecar."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aibrix_operator.runtime_api.wire import Answer, Request, Text


class LoadAdapterRequest(Request):
    """Fetch an adapter's files and have the Pod's engine load them."""

    lora_name: Text
    artifact_url: Text
    credentials: dict[Text, Text] | None = Field(default=None, repr=False)
    credentials_secret: Text | None = None
    """Name of a folder of mounted credentials; ``credentials`` win over it."""
    additional_config: dict[Text, Text] | None = Field(default=None, repr=False)
    """Laid over the credentials."""
    local_dir: Text | None = None
    """Taken for AIBrix's callers and not followed: who calls must not choose where the sidecar writes and removes."""


class LoadAdapterPathRequest(Request):
    """Have the engine load an adapter from a path or repository that it reads itself."""

    lora_name: Text
    lora_path: Text


class UnloadAdapterRequest(Request):
    """Have the engine let go of an adapter, and remove the files that were fetched for it."""

    lora_name: Text
    cleanup_local: bool = True


class UnloadAdapterByNumberRequest(Request):
    """As engines take it; the files stay."""

    lora_name: Text
    lora_int_id: int | None = None


class LoadAdapterResponse(Answer):
    """The engine has it."""

    status: Literal["success"] = "success"
    message: str = ""
    local_path: str | None = None
    engine_response: dict[str, Any] | None = None


class UnloadAdapterResponse(Answer):
    """The engine has it no more, or could not be asked."""

    status: Literal["success"] = "success"
    message: str = ""


class AdapterErrorResponse(Answer):
    """Why a load failed. No credential is in it."""

    error: str


class EngineErrorResponse(Answer):
    """A failure in the engine's shape, as AIBrix's sidecar answers it."""

    object: Literal["error"] = "error"
    message: str
    type: str
    param: str | None = None
    code: int


class DownloadRequest(Request):
    """Fetch a model's files in the background. Repeated, it tells how far that is."""

    model_uri: Text
    """An artifact address, or a repository of the hub without a scheme."""
    local_dir: Text | None = None
    model_name: Text | None = None
    download_extra_config: dict[Text, Any] | None = Field(default=None, repr=False)
    """``ak sk endpoint region`` for buckets, ``hf_token hf_endpoint hf_revision`` for the hub."""


class ListDownloadsRequest(Request):
    """Which folder to look into."""

    local_dir: Text


class DownloadState(Answer):
    """One model's files."""

    model_name: str
    model_root_path: str
    source: str
    model_status: Literal["not_exist", "downloading", "downloaded", "no_operation", "unknown"]
    """``no_operation``: begun, ended before its end, and nobody is at it."""


class DownloadsResponse(Answer):
    """What a folder holds."""

    object: Literal["list"] = "list"
    data: tuple[DownloadState, ...] = ()
