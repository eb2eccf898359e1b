"""Users from a YAML or JSON file, such as a mounted Secret: a list of ``{name, rpm, tpm}``, bare or under ``users``."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from aibrix_operator.gateway.limits.limiter import User
from aibrix_operator.gateway.limits.users import BadRecordError, user_of

LOG = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 1.0


class FileUsers:
    """A UserStore that reads its file again when it has changed. One that turns bad changes nothing, and is logged."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises OSError or ``BadRecordError`` for a file that can't be used at start."""
        self._path = path
        self._clock = clock
        self._seen = _identity(path)
        self._users = read(path)
        self._looked_s = clock()
        self.error: str | None = None
        """Why the file as it is now is not in use."""
        self._reader: threading.Thread | None = None

    def get(self, name: str) -> User | None:
        """Of the file as it was at most ``LOOK_EVERY_S`` ago."""
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._look()
        return self._users.get(name)

    def _look(self) -> None:
        try:
            seen = _identity(self._path)
        except OSError as error:
            self._stay(error)
            return
        if seen != self._seen and (self._reader is None or not self._reader.is_alive()):
            self._seen = seen
            # 10,000 users take YAML a second or more: requests do not wait for that.
            self._reader = threading.Thread(target=self._read, name="users", daemon=True)
            self._reader.start()

    def _read(self) -> None:
        try:
            self._users = read(self._path)
            self.error = None
        except (OSError, BadRecordError) as error:
            self._stay(error)

    def _stay(self, error: Exception) -> None:
        if self.error != str(error):
            self.error = str(error)
            LOG.warning("users of %s stay as they were: %s", self._path, error)


def read(path: Path) -> dict[str, User]:
    """Name → user. Raises OSError, ``BadRecordError``."""
    try:
        document = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadRecordError(f"{path} is neither YAML nor JSON: {error}") from error
    records = document.get("users") if isinstance(document, dict) else document
    if not isinstance(records, list):
        raise BadRecordError(f"{path} holds a list of users, bare or under the key users")
    users: dict[str, User] = {}
    for record in records:
        user = user_of(record)
        if user.name in users:
            raise BadRecordError(f"{path} has two users named {user.name!r}")
        users[user.name] = user
    return users


def _identity(path: Path) -> tuple[int, int, int]:
    # A mounted Secret changes by a link that is replaced: the inode differs even where the time does not.
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size
