"""Every request and answer of the runtime sidecar's HTTP API, as frozen models.

The sidecar validates requests and writes answers with these; the client writes requests and reads answers with them.
Requests refuse what they do not know. Answers may come from another version of the sidecar: unknown fields are ignored,
missing optional ones read as the value that stands for "unknown", and figures outside sane bounds make the whole answer
unreadable, because a ledger built on half an answer would promise memory that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

UNKNOWN_BYTES = -1
"""What a byte figure reads when it could not be measured: no KV segment, or a card that NVML does not size."""

SLEEP_LEVEL = 1
"""The level the operator sleeps engines at: weights go to host memory, so that a wake does not load them again."""

INT64_MAX = 2**63 - 1
PORT_MAX = 65_535


class EnginePhase(StrEnum):
    """Where an engine is in its life, as the sidecar tells it."""

    BOOTING = "booting"
    ACTIVE = "active"
    SLEEPING = "sleeping"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPING = "stopping"


def _iso_text(value: Any) -> Any:
    """Let only text and datetimes through: a bare number would be read as seconds since 1970."""
    if isinstance(value, str) and not value.lstrip("+-").replace(".", "", 1).isdigit():
        return value
    if isinstance(value, datetime):
        return value
    raise ValueError("a time is ISO 8601 text with an offset")


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time has no equal in UTC") from error


def _negative_is_unknown(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and -INT64_MAX - 1 <= value < 0:
        return UNKNOWN_BYTES
    return value


def _known_claim_fields(value: Any) -> Any:
    """Of a claim reference in an answer keep the three fields that we know."""
    if isinstance(value, Mapping):
        return {key: value[key] for key in ClaimRef.model_fields if key in value}
    return value


def _none_is_empty(value: Any) -> Any:
    return () if value is None else value


def is_encodable(text: str) -> bool:
    """JSON can name half a surrogate pair; no answer could carry it, and one such name would spoil every snapshot."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _encodable(value: str) -> str:
    if not is_encodable(value):
        raise ValueError("the text holds half a surrogate pair")
    return value


Text = Annotated[str, AfterValidator(_encodable)]
"""Text of a request."""

Count = Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)]
"""A figure that cannot be negative; no text, no float, no bool."""

MaybeBytes = Annotated[int, BeforeValidator(_negative_is_unknown), Field(strict=True, ge=UNKNOWN_BYTES, le=INT64_MAX)]
"""A byte figure in which every negative value means "not known" and reads ``UNKNOWN_BYTES``."""

Port = Annotated[int, Field(strict=True, ge=0, le=PORT_MAX)]
Flag = Annotated[bool, Field(strict=True)]
Instant = Annotated[AwareDatetime, BeforeValidator(_iso_text), AfterValidator(_in_utc)]
"""A moment with an offset, always handed over in UTC."""


class Request(BaseModel):
    """A request body: types as written, nothing that is not listed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class Answer(BaseModel):
    """An answer's body: what is not listed is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class ClaimRef(Request):
    """The ModelClaim an engine was started for. ``uid`` tells a re-created claim from its namesake."""

    namespace: Text
    name: Text
    uid: Text


class EngineConfig(Request):
    """Start options of an engine."""

    args: dict[Text, Text] | None = None
    """flag (``--max-model-len``) → value; an empty value stands for a switch. The order is the command line's."""


class ActivateRequest(Request):
    """Start a model as an engine process of its own. Idempotent by ``model_name``."""

    model_name: Text
    artifact_url: Text
    engine: Text = "vllm"
    port: int = Field(default=0, ge=0, le=PORT_MAX)
    """0 lets the sidecar pick."""
    ipc_name: Text | None = None
    """Name of the KV segment; None or empty: ``kvc_`` and the model's name."""
    credentials: dict[Text, Text] | None = Field(default=None, repr=False)
    engine_config: EngineConfig | None = None
    claim_ref: ClaimRef | None = None
    additional_config: dict[Text, Text] | None = Field(default=None, repr=False)
    """Older callers' way to pass flags: keys ``engine-arg:<flag>``."""


class DeactivateRequest(Request):
    """Stop a model's engine. Unknown models are fine."""

    model_name: Text
    mode: Text = "stop"


class KVLimitRequest(Request):
    """Set the KV limit of one engine, once per ``operation_id``."""

    model_name: Text
    limit_bytes: int = Field(ge=0, le=INT64_MAX)
    operation_id: Text = Field(min_length=1)


class SleepRequest(Request):
    """Put one engine to sleep, once per ``operation_id``."""

    model_name: Text
    level: int = Field(ge=1, le=2)
    operation_id: Text = Field(min_length=1)


class WakeRequest(Request):
    """Wake one engine, once per ``operation_id``."""

    model_name: Text
    operation_id: Text = Field(min_length=1)


class ActivateResponse(Answer):
    """The engine was started, or was there before; it need not be ready. ``status`` is ``error`` in refusals."""

    status: Literal["success", "error"] = "success"
    model_name: str = ""
    port: Port = 0
    ipc_name: str = ""
    message: str | None = None


class DeactivateResponse(Answer):
    """The engine was asked to stop, or is unknown."""

    status: Literal["success"] = "success"


class OperationResponse(Answer):
    """What came of a KV limit, sleep or wake. ``applied`` is false when the operation had been done before."""

    status: Literal["success"] = "success"
    model_name: str
    operation_id: str
    applied: Flag
    phase: EnginePhase


class Accelerator(Answer):
    """One GPU that the sidecar sees."""

    id: str
    """The GPU's UUID."""
    hbm_total_bytes: Count
    hbm_free_bytes: Count = 0
    hbm_usable_bytes: MaybeBytes = 0
    """Total less the driver's reservation; ``UNKNOWN_BYTES``: not measurable; 0: a sidecar too old to report it."""


class ModelState(Answer):
    """One engine in a snapshot. Defaults are what an older sidecar's silence means."""

    model_name: str
    artifact_url: str = ""
    claim_ref: Annotated[ClaimRef | None, BeforeValidator(_known_claim_fields)] = None
    port: Port = 0
    ipc_name: str = ""
    phase: EnginePhase
    ready: Flag = False
    """It answers its health check. Can be true while ``phase`` is still booting."""
    alive: Flag = True
    """False when failed or its first process is gone; workers of a stopping engine may still hold memory."""
    restart_count: Count = 0
    last_error: str | None = None
    last_transition: Instant | None = None
    """When the phase last changed, by the sidecar's clock."""
    kv_used_bytes: MaybeBytes = UNKNOWN_BYTES
    """KV pages mapped: used and preallocated. Unknown without a segment."""
    kv_capacity_bytes: MaybeBytes = UNKNOWN_BYTES
    """The KV limit in force. Unknown without a segment."""
    hbm_peak_bytes: Count = 0
    sleeping_footprint_bytes: Count | None = None
    """What it held right after falling asleep; None: awake, or not attributable."""
    request_metrics_observed: Flag = False
    """False makes the three figures below meaningless: not observed is not idle."""
    requests_running: Count = 0
    requests_waiting: Count = 0
    request_success_total: Count | None = None
    can_sleep: Flag | None = None
    """Whether the sidecar puts this engine to sleep and wakes it; None: it does not say."""

    @property
    def is_gone(self) -> bool:
        """Dead, and not started again by its sidecar: it holds no memory and takes none."""
        return not self.alive and self.phase is EnginePhase.FAILED


class Snapshot(Answer):
    """All that a sidecar sees at one moment."""

    observed_at: Instant
    accelerators: tuple[Accelerator, ...]
    models: tuple[ModelState, ...]
    cached_artifacts: Annotated[tuple[str, ...], BeforeValidator(_none_is_empty)] = ()
    """Artifact URLs whose weights this node served before: a hint of locality, sorted."""

    @property
    def usable_bytes(self) -> int:
        """What an engine on all of the Pod's GPUs can count on: the smallest's; 0 without one."""
        return min((a.hbm_usable_bytes for a in self.accelerators if a.hbm_total_bytes > 0), default=0)


class ChangesResponse(Answer):
    """The change feed's answer: the snapshot of now, and the version to ask for changes since."""

    version: str = Field(min_length=1, max_length=256)
    """Opaque. Another one from every process of a sidecar, and after every change of what a decision hangs on."""
    snapshot: Snapshot
    """Not older than the version: what changed since it was made is told by the next call."""


class ModelEntry(Answer):
    """One engine in the short list. Here a missing segment reads 0."""

    model_name: str
    port: Port
    ipc_name: str
    phase: EnginePhase
    ready: Flag = False
    kv_used_bytes: Count = 0
    kv_total_bytes: Count = 0


class ModelsResponse(Answer):
    """The short list of engines."""

    models: tuple[ModelEntry, ...]


class ErrorResponse(Answer):
    """A refusal in the framework's shape: 401, 404, 409."""

    detail: str


class WakeErrorResponse(Answer):
    """The engine did not wake. ``status`` tells the sidecar's own refusal from a proxy's bare 5xx."""

    status: Literal["error"] = "error"
    model_name: str
    message: str


class HealthResponse(Answer):
    """The answer of the two probes."""

    status: str
