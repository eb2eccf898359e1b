"""Loads adapters into the Pod's engine: files first, then the engine; and takes both away again.

Calls about one adapter follow each other. A load goes on when its caller has gone: the next one finds it done, or waits
for it, so that a large download may take longer than any call.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.artifacts import book
from aibrix_operator.artifacts.address import Origin, parse_address
from aibrix_operator.artifacts.errors import ArtifactError
from aibrix_operator.artifacts.fetching import fetch
from aibrix_operator.artifacts.source import redacted
from aibrix_operator.runtime.adapter_engine import AdapterEngine, EngineError
from aibrix_operator.runtime_api.adapter_wire import LoadAdapterRequest

logger = logging.getLogger(__name__)

_ENGINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""AIBrix's rule for engines, and no way out of a folder. It has no dots, although a file's name may have them."""
_SECRET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")


class AdapterError(Exception):
    """The adapter is not loaded. The text holds no credential."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of a load."""

    path: str
    """What the engine was given."""
    engine_words: str


class Adapters:
    """The adapters of one Pod."""

    def __init__(self, engine: AdapterEngine, folder: Path, credentials_folder: Path) -> None:
        self.engine = engine
        self._folder = folder
        self._credentials_folder = credentials_folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._urls: dict[str, str] = {}
        """Name → address that this process had the engine load; lost with it, which costs one more load."""

    async def load(self, request: LoadAdapterRequest) -> Loaded:
        """Idempotent: nothing is fetched and nothing loaded twice. Another address replaces what the engine has under
        the name. Raises ``AdapterError``."""
        name, url = checked_name(request.lora_name), request.artifact_url
        credentials = await asyncio.to_thread(self._credentials_of, request)
        async with self._locks.setdefault(name, asyncio.Lock()):
            try:
                address = parse_address(url)
                path = address.place
                if address.origin is not Origin.LOCAL:
                    # Always this very folder: an engine that restarts is given the same path again.
                    folder = await fetch(url, self._folder / name, credentials)
                    path = str(folder)
                if self._urls.get(name, url) != url:
                    await self.engine.unload(name)
                words = await self.engine.load(name, path)
            except (ArtifactError, EngineError) as error:
                raise AdapterError(redacted(str(error), credentials, limit=2000)) from error
            self._urls[name] = url
        logger.info("adapter %s is loaded from %s", name, path)
        return Loaded(path, words)

    async def load_path(self, name: str, path: str) -> str:
        """Hand the engine a path that it reads itself. Raises ``AdapterError`` or ``EngineError``."""
        checked_name(name)
        async with self._locks.setdefault(name, asyncio.Lock()):
            words = await self.engine.load(name, path)
            self._urls.pop(name, None)
        return words

    async def unload(self, name: str, *, removes_files: bool) -> str:
        """What became of it. The engine's failure is told and keeps nobody from removing the files: who unloads an
        adapter is done with it. Raises ``AdapterError`` for a name that is none."""
        checked_name(name)
        async with self._locks.setdefault(name, asyncio.Lock()):
            self._urls.pop(name, None)
            told = f"adapter {name} is unloaded"
            try:
                await self.engine.unload(name)
            except EngineError as error:
                told = f"the engine did not unload adapter {name}: {error}"
                logger.warning("%s", told)
            if removes_files:
                try:
                    await asyncio.to_thread(_remove, self._folder / name)
                except OSError as error:
                    told += f"; its files stay: {error.strerror}"
                    logger.warning("%s", told)
        return told

    def _credentials_of(self, request: LoadAdapterRequest) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if request.credentials:
            found |= request.credentials
        elif request.credentials_secret:
            found |= self._mounted(request.credentials_secret)
        return {**found, **(request.additional_config or {})}

    def _mounted(self, secret: str) -> dict[str, str]:
        if not _SECRET_NAME.fullmatch(secret):
            raise AdapterError(f"{secret!r} is no name of a Secret")
        folder = self._credentials_folder / secret
        try:
            # A Secret's volume keeps its versions in folders whose names begin with two dots.
            files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith("..")]
            return {path.name: path.read_text(encoding="utf-8").strip() for path in files}
        except (OSError, ValueError) as error:
            raise AdapterError(f"the credentials of Secret {secret} cannot be read below {folder}") from error


def checked_name(name: str) -> str:
    """``name``, when engines and folders take it. Raises ``AdapterError`` before anything is fetched."""
    if not _ENGINE_NAME.fullmatch(name):
        raise AdapterError(
            f"{name[:100]!r} is no name of an adapter: 1 to 100 letters, digits, - and _, the first a letter or digit"
        )
    return name


def _remove(folder: Path) -> None:
    # Nobody may take half of it for whole.
    book.remove_marker(folder)
    if folder.exists():
        shutil.rmtree(folder)
