"""The Pod's one engine, as far as adapters are concerned: not one of those that this sidecar starts, but the container
beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import aiohttp

TRIES: Final = 3
PAUSE_S = 0.5
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
ANSWER_LIMIT_BYTES = 8 << 20
_ERROR_LIMIT = 2000


class EngineError(Exception):
    """The engine did not do it. ``status`` is what a caller is answered."""

    def __init__(self, message: str, kind: str, status: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where the engine answers and how it is spoken to."""

    endpoint: str
    kind: str
    """``vllm`` or ``sglang``; they differ in the paths."""
    api_key: str


class AdapterEngine:
    """Calls to the engine. One that is answered 5xx or not at all is repeated: to load or unload twice does no harm."""

    def __init__(self, session: aiohttp.ClientSession, address: EngineAddress) -> None:
        self._session = session
        self._endpoint = address.endpoint.rstrip("/")
        self._prefix = "" if address.kind == "sglang" else "/v1"
        self._headers = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}

    async def models(self) -> tuple[int, bytes]:
        """Status and body of the engine's list, as they are. Raises ``EngineError`` when it cannot be asked."""
        return await self._ask("GET", "/v1/models", None)

    async def load(self, name: str, path: str) -> str:
        """The engine's words. Having it already counts as done. Raises ``EngineError``."""
        status, body = await self._ask(
            "POST", f"{self._prefix}/load_lora_adapter", {"lora_name": name, "lora_path": path}
        )
        text = body.decode(errors="replace")
        if status < HTTPStatus.BAD_REQUEST or _is_there_already(status, text):
            return text
        raise EngineError(_bounded(text) or f"the engine answers HTTP {status}", "ServerError", status)

    async def unload(self, name: str) -> str:
        """The engine's words. Not having it counts as done. Raises ``EngineError``."""
        status, body = await self._ask("POST", f"{self._prefix}/unload_lora_adapter", {"lora_name": name})
        text = body.decode(errors="replace")
        if status < HTTPStatus.BAD_REQUEST or _is_not_there(status, text):
            return text
        raise EngineError(_bounded(text) or f"the engine answers HTTP {status}", "ServerError", status)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        for tried in range(1, TRIES + 1):
            try:
                async with self._session.request(
                    method, self._endpoint + path, json=body, headers=self._headers, timeout=TIMEOUT
                ) as response:
                    content = await response.content.read(ANSWER_LIMIT_BYTES)
                    if response.status < HTTPStatus.INTERNAL_SERVER_ERROR or tried == TRIES:
                        return response.status, content
            except TimeoutError as error:
                # It may still be at it; a second call would wait behind the first.
                raise EngineError(f"{path} was not answered in time", "TimeoutError", 408) from error
            except (aiohttp.ClientError, OSError) as error:
                if tried == TRIES:
                    raise EngineError(f"cannot connect to the engine: {error}", "ConnectionError", 503) from error
            await asyncio.sleep(PAUSE_S * tried)
        raise AssertionError("the last try answers or raises")


def _is_there_already(status: int, text: str) -> bool:
    """vLLM 0.32 answers 400 "already been loaded", older ones 409, SGLang 400 "already loaded"."""
    says_so = "already been loaded" in text or "already loaded" in text
    return status == HTTPStatus.CONFLICT or (status == HTTPStatus.BAD_REQUEST and says_so)


def _is_not_there(status: int, text: str) -> bool:
    """vLLM answers 404, SGLang 400 "LoRA with name sql does not exist"."""
    says_so = "LoRA with name" in text and "does not exist" in text
    return status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and says_so)


def _bounded(text: str) -> str:
    return text if len(text) <= _ERROR_LIMIT else text[: _ERROR_LIMIT - 1] + "…"
