"""What the fetcher asks of whoever holds an artifact, and which of them serves an address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol, TypeAlias

from aibrix_operator.artifacts.errors import AddressError

Credentials: TypeAlias = Mapping[str, str]
"""As users keep them in Secrets: ``huggingface_token``, ``aws_access_key_id`` … (docs/modeladapter.md lists them)."""

UNKNOWN_SIZE = -1


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of an artifact."""

    path: str
    """Relative, with slashes; checked by ``safe_path``."""
    size_bytes: int
    """``UNKNOWN_SIZE`` where the other end does not tell."""
    version: str
    """Another one for other content; empty where nothing tells, and then nothing is resumed."""


class Source(Protocol):
    """Where the files of one artifact come from."""

    async def files(self) -> Sequence[RemoteFile]:
        """All files, at least one, in any order. Raises ``ArtifactError``."""
        ...

    def read(self, file: RemoteFile, offset: int) -> AsyncIterator[bytes]:
        """The bytes of ``file`` from ``offset`` on, of the version that it names. Raises ``ArtifactError``."""
        ...

    async def close(self) -> None:
        """Give connections back."""
        ...


def safe_path(path: str) -> str:
    """``path``, when it stays below the folder that it is put into. Raises ``AddressError``."""
    pure = PurePosixPath(path)
    odd = not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or not path.isprintable()
    if odd or str(pure) != path:
        raise AddressError(f"the artifact has a file {path!r}, which is no path below a folder")
    return path


def redacted(text: str, credentials: Credentials, limit: int = 400) -> str:
    """``text`` without any credential in it, on one line, cut to ``limit``: servers repeat what they were sent."""
    for value in sorted(filter(None, credentials.values()), key=len, reverse=True):
        text = text.replace(value, "***")
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
