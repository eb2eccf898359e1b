"""The HTTP calls that the sidecar makes to an engine on this Pod: health, metrics, control."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

HEALTH_DEADLINE_S = 1.0
METRICS_DEADLINE_S = 0.5
CONTROL_DEADLINE_S = 50.0
METRICS_LIMIT_BYTES = 8 << 20
"""A page beyond this is no metrics page: seven engines' take about 200 kB. No other answer is larger."""


class EngineCallError(Exception):
    """The engine did not take a call; the message says why."""


class EngineTimeoutError(EngineCallError):
    """The engine did not answer in time. It may still be at it."""


class EngineStatusError(EngineCallError):
    """The engine answered an error status."""

    def __init__(self, path_and_query: str, status: int) -> None:
        super().__init__(f"{path_and_query} answered status {status}")
        self.status = status


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

    async def post(
        self, path_and_query: str, deadline_s: float = CONTROL_DEADLINE_S, *, json_body: Mapping[str, Any] | None = None
    ) -> None:
        """A control call, with a body where one is given. Raises ``EngineCallError`` unless the engine answers 2xx."""
        await self._call("POST", path_and_query, deadline_s, json_body)

    async def get(self, path_and_query: str, deadline_s: float) -> None:
        """A call for its status alone. Raises ``EngineCallError`` unless the engine answers 2xx."""
        await self._call("GET", path_and_query, deadline_s, None)

    async def get_object(self, path_and_query: str, deadline_s: float) -> Mapping[str, Any]:
        """The JSON object that the engine answers. Raises ``EngineCallError``, also for anything that is none."""
        text = await self._call("GET", path_and_query, deadline_s, None)
        try:
            value = json.loads(text or "")
        except (ValueError, RecursionError) as error:
            raise EngineCallError(f"{path_and_query} answered no JSON") from error
        if not isinstance(value, dict):
            raise EngineCallError(f"{path_and_query} answered no JSON object")
        return value

    async def _call(
        self, method: str, path_and_query: str, deadline_s: float, json_body: Mapping[str, Any] | None
    ) -> str | None:
        timeout = aiohttp.ClientTimeout(total=deadline_s)
        url = f"{self._base}{path_and_query}"
        try:
            async with self._session.request(method, url, json=json_body, timeout=timeout) as response:
                if not response.ok:
                    raise EngineStatusError(path_and_query, response.status)
                return await _read_text(response)
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
