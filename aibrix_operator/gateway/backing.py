"""Where a replica's counts and records live: in its memory, or in Redis for all replicas."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry

from aibrix_operator.gateway.limits.limiter import Limiter
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.user_file import FileUsers
from aibrix_operator.gateway.limits.users import Users, UserStore
from aibrix_operator.gateway.options import Options

log = logging.getLogger(__name__)


class Backing:
    """Limits and users as the options ask for them. OSError or ``BadRecordError`` for a file that can't be used."""

    def __init__(self, options: Options, registry: CollectorRegistry) -> None:
        self._options = options
        self._file = FileUsers(options.users_file) if options.users_file is not None else None
        store: UserStore | None = self._file
        self.limiter: Limiter = MemoryLimiter()
        self.users = Users(store, options.users_mode, options.redis_away)

    async def start(self) -> None:
        """Begin; says what is kept where."""
        log.warning(
            "no Redis is configured: limits, counts and sessions are this replica's own, in memory; "
            "several replicas would each grant all of a limit"
        )

    async def close(self) -> None:
        """Let go."""

    def problems(self) -> list[str]:
        """What keeps this replica from being ready."""
        return []

    def status(self) -> object:
        """For the status page."""
        users = {"mode": str(self._options.users_mode), "file": str(self._options.users_file or "") or None}
        if self._file is not None:
            users["problem"] = self._file.error
        return {"store": "memory", "users": users}
