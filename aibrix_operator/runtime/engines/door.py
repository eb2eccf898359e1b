"""The HTTP calls that the sidecar makes to an engine on this Pod: health, metrics, control."""

from __future__ import annotations

import aiohttp

HEALTH_DEADLINE_S = 1.0
METRICS_DEADLINE_S = 0.5
CONTROL_DEADLINE_S = 50.0
METRICS_LIMIT_BYTES = 8 << 20
"""A page beyond this is no metrics page: seven engines' take about 200 kB."""


class EngineCallError(Exception):
    """The engine did not take a call; the message says why."""


class EngineTimeoutError(EngineCallError):
    """The engine did not answer in time. It may still be at it."""


class EngineStatusError(EngineCallError):
    """The engine answered an error status."""


class EngineDoor:
    """One engine's address. Cheap to make; the session is shared."""

    def __init__(self, session: aiohttp.ClientSession, host: str, port: int) -> None:
        self._session = session
        self._base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def is_ready(self) -> bool:
        """Whether the health check answers 200 in time."""
        timeout = aiohttp.ClientTimeout(total=HEALTH_DEADLINE_S)
        try:
            async with self._session.get(f"{self._base}/health", timeout=timeout, allow_redirects=False) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def metrics_page(self) -> str | None:
        """The engine's metrics page, or None when it could not be read in time."""
        timeout = aiohttp.ClientTimeout(total=METRICS_DEADLINE_S)
        try:
            async with self._session.get(f"{self._base}/metrics", timeout=timeout) as response:
                if response.status != 200:
                    return None
                return await _read_text(response)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def post(self, path_and_query: str, deadline_s: float = CONTROL_DEADLINE_S) -> None:
        """A control call without a body. Raises ``EngineCallError`` unless the engine answers 2xx."""
        timeout = aiohttp.ClientTimeout(total=deadline_s)
        try:
            async with self._session.post(f"{self._base}{path_and_query}", timeout=timeout) as response:
                if not response.ok:
                    raise EngineStatusError(f"{path_and_query} answered status {response.status}")
        except TimeoutError as error:
            raise EngineTimeoutError(f"{path_and_query} did not answer within {deadline_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineCallError(f"{path_and_query} failed: {error}") from error


async def _read_text(response: aiohttp.ClientResponse) -> str | None:
    page = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        page += chunk
        if len(page) > METRICS_LIMIT_BYTES:
            return None
    return page.decode(errors="replace")
