"""What we ask of Envoy's admin interface."""

from __future__ import annotations

from typing import Final

import aiohttp

from aibrix_operator.gateway.address import Address

_ACTIVE: Final = "http.gateway.downstream_rq_active"
_LOST: Final = "access_logs.grpc_access_log.logs_dropped"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=2)


class Admin:
    """Each call is a connection of its own: they are few. None and False: it does not answer (yet, or any more)."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def is_ready(self) -> bool:
        """It has its configuration and listens."""
        return await self._ask("GET", "/ready") is not None

    async def drain(self) -> bool:
        """Tell clients to close their connections after the answer that they wait for."""
        return await self._ask("POST", "/healthcheck/fail") is not None

    async def active_requests(self) -> int | None:
        """Requests of clients that are not answered whole."""
        return await self._counter(_ACTIVE)

    async def lost_entries(self) -> int | None:
        """Entries of the access log that Envoy could not send since it started."""
        return await self._counter(_LOST)

    async def _counter(self, name: str) -> int | None:
        """0 for one that nothing was counted in yet: Envoy leaves it out."""
        text = await self._ask("GET", f"/stats?filter=^{name}$")
        if text is None:
            return None
        _, _, value = text.strip().partition(": ")
        return int(value) if value.isdigit() else 0

    async def _ask(self, method: str, path: str) -> str | None:
        unix = self._address.path
        connector = aiohttp.UnixConnector(unix) if unix else aiohttp.TCPConnector()
        base = "http://envoy" if unix else f"http://{self._address}"
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session,
                session.request(method, base + path) as answer,
            ):
                return await answer.text() if answer.status == 200 else None
        except (TimeoutError, aiohttp.ClientError, OSError):  # the caller is told by None
            return None
