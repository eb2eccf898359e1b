"""The client of the runtime sidecar: one method a call, one outcome a call, no exception but cancellation.

Deadlines, the size of an answer that counts and the windows in which a silent sidecar is left alone are the contract's.
Callers hand in the base URL (``base_url(ip)``); all state is the windows, keyed by host and port.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import aiohttp
from yarl import URL

from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import NotSent, Outcome, Unknown
from aibrix_operator.runtime_api.patience import Patience
from aibrix_operator.runtime_api.reading import ANSWER_LIMIT_BYTES, cut, read_answer

RUNTIME_PORT = 8080
SNAPSHOT_DEADLINE_S = 10.0
CALL_DEADLINE_S = 60.0
LONGEST_CONNECT_S = 30.0

MODELS_PATH = "/v1/runtime/models"
SNAPSHOT_PATH = "/v1/runtime/snapshot"
CHANGES_PATH = "/v1/runtime/changes"

AnswerT = TypeVar("AnswerT", bound=wire.Answer)
Headers = Mapping[str, str]


def base_url(ip: str, port: int = RUNTIME_PORT) -> str:
    """The base URL of the sidecar in the Pod with this address; IPv6 addresses get their brackets."""
    return f"http://[{ip}]:{port}" if ":" in ip else f"http://{ip}:{port}"


class RuntimeClient:
    """Calls sidecars. Safe to use for many Pods at once; calls to one Pod are the caller's to order."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        token: str | None = None,
        fence: Callable[[], Headers | None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``fence`` gives headers for the next call, by which the sidecar tells a former leader of the operator.

        Where it gives None this process may not change anything now: such calls are not sent. ``clock`` counts seconds
        and never goes back.
        """
        self._session = session
        self._headers: dict[str, str] = {"Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._fence = fence
        self._clock = clock
        self._patience = Patience()

    async def snapshot(self, base: str) -> Outcome[wire.Snapshot]:
        """Read all that the sidecar sees."""
        return await self._call(base, SNAPSHOT_PATH, None, wire.Snapshot, SNAPSHOT_DEADLINE_S)

    async def changes(self, base: str, since: str, timeout_s: float) -> Outcome[wire.ChangesResponse]:
        """Read all that the sidecar sees once its version is another than ``since``, or after ``timeout_s``.

        An empty ``since`` reads at once. ``Refused`` with status 404 or 405: the sidecar has no change feed.
        """
        query = {"since": since, "timeout": f"{timeout_s:.3f}"}
        deadline_s = timeout_s + SNAPSHOT_DEADLINE_S
        return await self._call(base, CHANGES_PATH, None, wire.ChangesResponse, deadline_s, query=query)

    async def activate(self, base: str, request: wire.ActivateRequest) -> Outcome[wire.ActivateResponse]:
        """Start an engine. Idempotent by model name."""
        return await self._change(base, "activate", request, wire.ActivateResponse)

    async def deactivate(self, base: str, request: wire.DeactivateRequest) -> Outcome[wire.DeactivateResponse]:
        """Stop an engine. Sent even to a sidecar that is left alone: nothing else frees the card."""
        return await self._change(base, "deactivate", request, wire.DeactivateResponse, insist=True)

    async def set_kv_limit(self, base: str, request: wire.KVLimitRequest) -> Outcome[wire.OperationResponse]:
        """Write an engine's KV limit. Success says nothing until a snapshot shows it."""
        return await self._change(base, "kv-limit", request, wire.OperationResponse)

    async def sleep(self, base: str, request: wire.SleepRequest) -> Outcome[wire.OperationResponse]:
        """Put an engine to sleep."""
        return await self._change(base, "sleep", request, wire.OperationResponse)

    async def wake(
        self, base: str, request: wire.WakeRequest, deadline_s: float | None = None
    ) -> Outcome[wire.OperationResponse]:
        """Wake an engine; ``deadline_s`` None is that of every call."""
        return await self._change(base, "wake", request, wire.OperationResponse, deadline_s=deadline_s)

    async def _change(
        self,
        base: str,
        action: str,
        request: wire.Request,
        answer: type[AnswerT],
        *,
        insist: bool = False,
        deadline_s: float | None = None,
    ) -> Outcome[AnswerT]:
        deadline_s = CALL_DEADLINE_S if deadline_s is None else deadline_s
        return await self._call(base, f"{MODELS_PATH}/{action}", request, answer, deadline_s, insist=insist)

    async def _call(
        self,
        base: str,
        path: str,
        request: wire.Request | None,
        answer: type[AnswerT],
        deadline_s: float,
        *,
        insist: bool = False,
        query: Mapping[str, str] | None = None,
    ) -> Outcome[AnswerT]:
        """Send one call and sort what came of it. ``request`` None is a GET."""
        url = _parse(base, path, query)
        if url is None:
            return NotSent(f"the runtime's address {cut(repr(base))} cannot be read, so {path} was not called")
        address = _address(url)
        fence = self._fence() if self._fence is not None else {}
        if fence is None and request is not None:
            return NotSent(f"this operator does not lead, so {path} of the runtime at {address} was not called")
        sent_at_s = self._clock()
        if not insist and self._patience.is_left_alone(address, sent_at_s):
            message = f"runtime at {address} did not answer in time recently; not calling it again yet"
            return NotSent(message, left_alone=True)
        try:
            outcome = await self._exchange(url, request, fence or {}, answer, deadline_s)
        except TimeoutError as error:
            self._patience.timed_out(address, sent_at_s, self._clock())
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                return NotSent(f"runtime at {address} took no connection in time, so {path} was not called")
            return Unknown(f"runtime at {address} did not answer {path} within {deadline_s:g} s")
        except aiohttp.ClientConnectorError as error:
            outcome = NotSent(f"runtime at {address} could not be reached, so {path} was not called: {cut(error)}")
        except aiohttp.InvalidURL:
            outcome = NotSent(f"the runtime's address {cut(repr(base))} cannot be read, so {path} was not called")
        except (aiohttp.ClientError, OSError) as error:
            text = f"{type(error).__name__}: {error}"
            outcome = Unknown(f"runtime at {address} broke off its answer to {path}: {cut(text)}")
        self._patience.heard_from(address, self._clock())
        return outcome

    async def _exchange(
        self, url: URL, request: wire.Request | None, fence: Headers, answer: type[AnswerT], deadline_s: float
    ) -> Outcome[AnswerT]:
        connect_s = SNAPSHOT_DEADLINE_S / 2 if request is None else min(deadline_s / 2, LONGEST_CONNECT_S)
        timeout = aiohttp.ClientTimeout(total=deadline_s, sock_connect=connect_s)
        headers = {**self._headers, **fence}
        if request is None:
            method, body = "GET", None
        else:
            method, body = "POST", request.model_dump_json(exclude_none=True).encode()
            headers["Content-Type"] = "application/json"
        async with self._session.request(
            method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            content = await _first_mib(response.content)
            return read_answer(f"runtime at {_address(url)}", url.path, response.status, content, answer)


async def _first_mib(stream: aiohttp.StreamReader) -> bytes:
    """The answer up to one byte more than counts, so that the reader can tell a whole answer from a longer one."""
    chunks: list[bytes] = []
    missing = ANSWER_LIMIT_BYTES + 1
    while missing > 0:
        chunk = await stream.read(missing)
        if not chunk:
            break
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)


def _address(url: URL) -> str:
    """``host:port``, by which windows are kept and messages name a sidecar."""
    return f"[{url.host}]:{url.port}" if ":" in (url.host or "") else f"{url.host}:{url.port}"


def _parse(base: str, path: str, query: Mapping[str, str] | None) -> URL | None:
    """The URL of a call, or None when ``base`` is not ``http://host[:port]``."""
    try:
        url = URL(base)
        if url.scheme not in ("http", "https") or not url.host or url.port is None:
            return None
        return url.with_path(path).with_query(query)
    except ValueError:
        return None
