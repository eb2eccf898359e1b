"""Calls about adapters, to engines or to the sidecars before them, in AIBrix's words. One outcome a call, no exception
but cancellation; what an engine said is in it, what it was sent is not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp
import orjson

from aibrix_operator.modeladapter.snapshot import ListedModel, Target, Verdict, Way
from aibrix_operator.modeladapter.work import Work, read_page

LIST_DEADLINE_S = 10.0
METRICS_DEADLINE_S = 5.0
CALL_DEADLINE_S = 30.0
ERROR_LIMIT_BYTES = 4096
_READ_LIMIT_BYTES = 4 << 20
_MESSAGE_LIMIT = 400
_SGLANG = "sglang"


@dataclass(frozen=True, slots=True)
class Access:
    """How an adapter's calls are let in."""

    api_key: str = field(default="", repr=False)
    """Of ``additionalConfig``; empty: no header is sent."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be loaded, and what a sidecar needs to fetch it."""

    artifact_url: str
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    additional_config: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """How a load or unload ended."""

    verdict: Verdict
    message: str


class Engines(Protocol):
    """Whoever carries out the calls."""

    async def models(self, target: Target, access: Access) -> Mapping[str, ListedModel] | str:
        """The engine's models by name; text: why there is no list."""
        ...

    async def work(self, target: Target, access: Access) -> Work | str:
        """What the engine's metrics tell; text: why there are none."""
        ...

    async def load(self, target: Target, access: Access, name: str, source: Source) -> Answer:
        """Have it loaded; an engine that has it already did so."""
        ...

    async def unload(self, target: Target, access: Access, name: str) -> Answer:
        """Have it unloaded; an engine that has it not did so."""
        ...


class HttpEngines:
    """``Engines`` over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, runtime_token: str | None = None) -> None:
        """``runtime_token``: what sidecars ask for; it takes the place of an adapter's api-key there."""
        self._session = session
        self._runtime_token = runtime_token

    async def models(self, target: Target, access: Access) -> Mapping[str, ListedModel] | str:
        """As ``Engines.models``."""
        ended = await self._send("GET", target, "/v1/models", None, access, LIST_DEADLINE_S, _READ_LIMIT_BYTES)
        if isinstance(ended, Answer):
            return ended.message
        status, body = ended
        if status != HTTPStatus.OK:
            return f"cannot list models (status {status}): {_told(body)}"
        try:
            return {
                str(entry["id"]): ListedModel(is_base="parent" in entry and entry["parent"] is None)
                for entry in orjson.loads(body)["data"]
            }
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return "cannot list models: the answer is no list of models"

    async def work(self, target: Target, access: Access) -> Work | str:
        """As ``Engines.work``. A sidecar's page is about the sidecar, so the engine itself is asked."""
        engine = replace(target, port=target.engine_port, way=Way.DIRECT)
        ended = await self._send("GET", engine, "/metrics", None, access, METRICS_DEADLINE_S, _READ_LIMIT_BYTES)
        if isinstance(ended, Answer):
            return ended.message
        status, body = ended
        if status != HTTPStatus.OK:
            return f"cannot read metrics (status {status}): {_told(body)}"
        return read_page(body.decode(errors="replace"), asyncio.get_running_loop().time())

    async def load(self, target: Target, access: Access, name: str, source: Source) -> Answer:
        """As ``Engines.load``."""
        if target.way is Way.SIDECAR:
            path = "/v1/lora_adapter/load"
            body: dict[str, Any] = {"lora_name": name, "artifact_url": source.artifact_url}
            if source.credentials:
                body["credentials"] = dict(source.credentials)
            if source.additional_config:
                body["additional_config"] = dict(source.additional_config)
        else:
            path = _engine_path(target, "load")
            body = {"lora_name": name, "lora_path": direct_path(source.artifact_url)}
        answer = await self._change(target, path, body, access, "failed to load LoRA adapter")
        secrets = [*source.credentials.values(), *source.additional_config.values()]
        return Answer(answer.verdict, _without(answer.message, secrets))

    async def unload(self, target: Target, access: Access, name: str) -> Answer:
        """As ``Engines.unload``."""
        if target.way is Way.SIDECAR:
            path, body = "/v1/lora_adapter/unload", {"lora_name": name, "cleanup_local": True}
        else:
            path, body = _engine_path(target, "unload"), {"lora_name": name}
        return await self._change(target, path, body, access, "failed to unload LoRA adapter", absent_is_done=True)

    async def _change(
        self,
        target: Target,
        path: str,
        body: Mapping[str, Any],
        access: Access,
        failure: str,
        *,
        absent_is_done: bool = False,
    ) -> Answer:
        ended = await self._send("POST", target, path, body, access, CALL_DEADLINE_S, ERROR_LIMIT_BYTES)
        if isinstance(ended, Answer):
            return ended
        status, answer = ended
        if status in (HTTPStatus.OK, HTTPStatus.CREATED) or (absent_is_done and _is_not_there(status, answer)):
            return Answer(Verdict.DONE, "")
        text = f"{failure} (status {status}): {_told(answer)}"
        if not absent_is_done and _is_there_already(status, answer):
            return Answer(Verdict.DONE, "")
        # Behind these may be a proxy whose engine goes on with what it was sent.
        may_be_done = status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
        return Answer(Verdict.UNKNOWN if may_be_done else Verdict.REFUSED, text)

    async def _send(
        self,
        method: str,
        target: Target,
        path: str,
        body: Mapping[str, Any] | None,
        access: Access,
        deadline_s: float,
        limit_bytes: int,
    ) -> tuple[int, bytes] | Answer:
        host = f"[{target.ip}]" if ":" in target.ip else target.ip
        headers = {"Content-Type": "application/json"} if body is not None else {}
        token = (self._runtime_token if target.way is Way.SIDECAR else None) or access.api_key
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            async with self._session.request(
                method,
                f"http://{host}:{target.port}{path}",
                data=None if body is None else orjson.dumps(body),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=deadline_s, sock_connect=deadline_s / 2),
                allow_redirects=False,
            ) as response:
                return response.status, await _first(response, limit_bytes)
        except aiohttp.ClientConnectorError as error:
            return Answer(Verdict.NOT_SENT, f"{host}:{target.port} cannot be reached: {_cut(str(error))}")
        except aiohttp.ConnectionTimeoutError:
            return Answer(Verdict.NOT_SENT, f"{host}:{target.port} took no connection in time")
        except TimeoutError:
            return Answer(Verdict.UNKNOWN, f"{host}:{target.port} did not answer {path} within {deadline_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(Verdict.UNKNOWN, f"{host}:{target.port} broke off: {type(error).__name__}")


def direct_path(artifact_url: str) -> str:
    """What an engine is told that reads the artifact itself: of the hub the repository, all else as it is."""
    for scheme in ("huggingface://", "hf://"):
        if artifact_url.startswith(scheme):
            return artifact_url.removeprefix(scheme)
    return artifact_url


def _engine_path(target: Target, action: str) -> str:
    return f"/{action}_lora_adapter" if target.engine == _SGLANG else f"/v1/{action}_lora_adapter"


def _is_there_already(status: int, body: bytes) -> bool:
    """vLLM 0.32 answers 400 "already been loaded", older ones 409, SGLang 400 "already loaded"."""
    says_so = b"already been loaded" in body or b"already loaded" in body
    return status == HTTPStatus.CONFLICT or (status == HTTPStatus.BAD_REQUEST and says_so)


def _is_not_there(status: int, body: bytes) -> bool:
    """vLLM answers 404, SGLang 400 "LoRA with name sql does not exist"."""
    says_so = b"LoRA with name" in body and b"does not exist" in body
    return status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and says_so)


async def _first(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    kept = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        kept += chunk
        if len(kept) >= limit_bytes:
            break
    return bytes(kept[:limit_bytes])


def _told(body: bytes) -> str:
    """The words of an error, out of the shapes that engines and sidecars give it."""
    text = body.decode(errors="replace")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _cut(text) or "no reason given"
    if isinstance(value, dict):
        words = (value.get(key) for key in ("error", "error_message", "message", "detail"))
        value = next(filter(None, words), value)
    if isinstance(value, dict):
        value = value.get("message") or value
    return _cut(value if isinstance(value, str) else orjson.dumps(value).decode())


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_LIMIT else line[: _MESSAGE_LIMIT - 1] + "…"


def _without(text: str, secrets: list[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
