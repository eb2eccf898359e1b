"""What runs in a warmup's Pod: fetch one artifact into the node's cache, and report it as the container's last word."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from aibrix_operator.api.conditions import bounded
from aibrix_operator.artifacts import book, errors, fetching
from aibrix_operator.modelwarmup.job import GIVE_UP_STATUS

DONE_STATUS, RETRY_STATUS = 0, 1
_LOCK_POLL_S = 1.0
_REASONS: Mapping[type[errors.ArtifactError], str] = {
    errors.AddressError: "InvalidAddress",
    errors.NotFoundError: "ArtifactNotFound",
    errors.NotAllowedError: "ArtifactNotAllowed",
    errors.NoRoomError: "NoRoom",
    errors.FolderError: "FolderNotWritable",
    errors.UnreachableError: "Unreachable",
    errors.ChangedError: "ArtifactChanged",
}


async def fetch(url: str, folder: Path, credentials: Path | None, report: Path | None) -> tuple[int, str]:
    """Returns the exit status and a sentence for the log.

    ``credentials``: a folder with one file a key, as a Secret is mounted. ``report``: where the kubelet looks for a
    container's last message. A disk that cannot hold the artifact is no matter of time here: the Job is to fail.
    """
    so_far = fetching.Progress(0, 0, 0)

    def note(progress: fetching.Progress) -> None:
        nonlocal so_far
        so_far = progress

    try:
        async with _alone(folder):
            await fetching.fetch(url, folder, read_credentials(credentials), on_progress=note)
    except errors.ArtifactError as error:
        reason = _REASONS.get(type(error), type(error).__name__)
        _say(report, {"bytes": so_far.fetched_bytes, "reason": reason, "message": bounded(str(error))})
        may_help = error.is_worth_retrying and not isinstance(error, errors.NoRoomError)
        return (RETRY_STATUS if may_help else GIVE_UP_STATUS), f"{reason}: {error}"
    held_bytes = size_of(folder)
    _say(report, {"bytes": held_bytes})
    return DONE_STATUS, f"{folder} holds the artifact, {held_bytes:,} bytes"


def read_credentials(folder: Path | None) -> dict[str, str]:
    """File name → its text, without the blanks around it. Hidden entries are the kubelet's own."""
    if folder is None:
        return {}
    files = (path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file())
    return {path.name: path.read_text(encoding="utf-8").strip() for path in files}


def size_of(folder: Path) -> int:
    """Bytes of a complete artifact, as its marker says; 0 where it does not."""
    try:
        return int(json.loads((folder / book.MARKER).read_text(encoding="utf-8"))["bytes"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def _say(report: Path | None, said: Mapping[str, object]) -> None:
    if report is not None:
        with contextlib.suppress(OSError):  # the report is a courtesy: the exit status is what counts
            report.write_text(json.dumps(said), encoding="utf-8")


@contextlib.asynccontextmanager
async def _alone(folder: Path) -> AsyncIterator[None]:
    """Two warmups may bring one artifact to a node at once: the second waits, and finds it there.

    The lock lies beside the folder, on the node's own file system, so that it holds between containers. It goes with
    the process.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder.parent / f".{folder.name}.lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise errors.FolderError(f"{folder.parent} cannot be written: {error.strerror or error}") from error
    try:
        while not _is_locked(lock):  # noqa: ASYNC110  # another process holds it, and no event of ours tells when
            await asyncio.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
