"""The file that carries engine records over a restart of the sidecar. Kubernetes stays the authority on what is wanted.

A record that cannot be trusted is left out: a wrong guess about a process that is not ours could end a stranger's.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from aibrix_operator.api.term import Term, parse_term
from aibrix_operator.runtime.records import EngineProcess, EngineRecord
from aibrix_operator.runtime_api.wire import PORT_MAX, ClaimRef, EnginePhase, Text

logger = logging.getLogger(__name__)

VERSION = 1
TERM_KEY = "operator_term"
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Stored:
    """What the file held: records in its order, duplicates included, and how many entries were no records."""

    records: tuple[EngineRecord, ...] = ()
    invalid: int = 0
    operator_term: Term | None = None
    """The highest term of an operator that was accepted; None in a file of upstream's."""


class RegistryError(Exception):
    """The registry could not be written; the message names the file. Handled by whoever made the change."""


def _text_only(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a time is stored as text")
    return value


StoredTime = Annotated[AwareDatetime, BeforeValidator(_text_only), AfterValidator(lambda value: value.astimezone(UTC))]


class _StoredConfig(BaseModel):
    model_config = ConfigDict(frozen=True)
    args: dict[str, str] | None = None


class _StoredEngine(BaseModel):
    """One entry of the file. A missing field that has no default makes the entry invalid."""

    model_config = ConfigDict(frozen=True)

    model_name: Text = Field(min_length=1)
    artifact_url: Text
    engine: Text
    port: int = Field(ge=1, le=PORT_MAX)
    ipc_name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    phase: EnginePhase
    last_transition: StoredTime
    claim_ref: ClaimRef | None = None
    engine_config: _StoredConfig | None = None
    additional_config: dict[str, str] | None = None
    pid: int | None = Field(default=None, gt=1)
    pid_start_time: str | None = None
    restart_count: int = Field(default=0, ge=0)
    last_error: Text | None = None
    next_restart_at: StoredTime | None = None
    sleeping_footprint_bytes: int | None = Field(default=None, ge=0)


class EngineRegistry:
    """One registry file. Calls block on the disk: make them from a thread, one at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Stored:
        """What was stored last. An unreadable file or one of another version holds nothing."""
        try:
            document = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return Stored()
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("the engine registry %s cannot be read, so no engine is taken over: %s", self._path, error)
            return Stored()
        entries = _entries(document)
        if entries is None:
            logger.warning("the engine registry %s is no version %d list of engines", self._path, VERSION)
            return Stored()
        records = [record for entry in entries if (record := _to_record(entry)) is not None]
        return Stored(tuple(records), len(entries) - len(records), _to_term(document.get(TERM_KEY)))

    def save(self, records: Sequence[EngineRecord], operator_term: Term | None = None) -> None:
        """Replace the file as a whole, so that a crash leaves the old one or the new one."""
        document: dict[str, Any] = {"engines": [to_entry(record) for record in records], "version": VERSION}
        if operator_term is not None:
            document[TERM_KEY] = str(operator_term)  # upstream's sidecar leaves it unread
        text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        try:
            self._path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._replace(text.encode())
        except OSError as error:
            raise RegistryError(f"engine registry {self._path} cannot be written: {error}") from error

    def _replace(self, content: bytes) -> None:
        descriptor, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), FILE_MODE)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):  # the rename may have taken it away already
                os.unlink(temporary)
            raise
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def to_entry(record: EngineRecord) -> dict[str, Any]:
    """The record as the file spells it."""
    process = record.process
    return {
        "additional_config": None if record.additional_config is None else dict(record.additional_config),
        "artifact_url": record.artifact_url,
        "claim_ref": None if record.claim_ref is None else record.claim_ref.model_dump(),
        "engine": record.engine,
        "engine_config": None if record.engine_args is None else {"args": dict(record.engine_args)},
        "ipc_name": record.ipc_name,
        "last_error": record.last_error,
        "last_transition": record.last_transition.isoformat(),
        "model_name": record.model_name,
        "next_restart_at": _iso(record.next_restart_at),
        "phase": record.phase.value,
        "pid": None if process is None else process.pid,
        "pid_start_time": None if process is None else process.start_ticks,
        "port": record.port,
        "restart_count": record.restart_count,
        "sleeping_footprint_bytes": record.sleeping_footprint_bytes,
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _entries(document: Any) -> list[Mapping[str, Any]] | None:
    """The list of engines, or None when the document is not of our version or one entry is no object."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return None
    engines = document.get("engines")
    if not isinstance(engines, list) or not all(isinstance(entry, dict) for entry in engines):
        return None
    return engines


def _to_term(stored: Any) -> Term | None:
    try:
        return None if stored is None else parse_term(str(stored))
    except ValueError as error:
        logger.warning("the engine registry's operator term is left out: %s", error)
        return None


def _to_record(entry: Mapping[str, Any]) -> EngineRecord | None:
    try:
        stored = _StoredEngine.model_validate(entry)
    except (ValidationError, OverflowError) as error:
        logger.warning("an entry of the engine registry is left out: %s", error)
        return None
    process = None
    if stored.pid is not None and stored.pid_start_time is not None:
        process = EngineProcess(stored.pid, stored.pid_start_time)
    is_asleep = stored.phase is EnginePhase.SLEEPING
    return EngineRecord(
        model_name=stored.model_name,
        artifact_url=stored.artifact_url,
        engine=stored.engine,
        port=stored.port,
        ipc_name=stored.ipc_name,
        last_transition=stored.last_transition,
        claim_ref=stored.claim_ref,
        engine_args=None if stored.engine_config is None else stored.engine_config.args,
        additional_config=stored.additional_config,
        phase=stored.phase,
        process=process,
        restart_count=stored.restart_count,
        last_error=stored.last_error,
        next_restart_at=stored.next_restart_at,
        sleeping_footprint_bytes=stored.sleeping_footprint_bytes if is_asleep else None,
    )
