"""The demo's HTTP calls: to an engine as its clients call it, and to a sidecar as the operator does."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import Any

from aibrix_operator.api import names

_ANSWER_WITHIN_S = 60.0
# Without the proxies that the environment may name: everything is on this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """The call failed, or the answer is not what it should be; the text says which."""


def ask(address: str, port: int, model: str, question: str) -> str:
    """One chat question; the words that the model answers. Raises NoAnswer."""
    body = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 16, "temperature": 0}
    answer = _call(f"http://{address}:{port}/v1/chat/completions", body)
    try:
        words: str = answer["choices"][0]["message"]["content"].strip()
        tokens: int = answer["usage"]["completion_tokens"]
    except (LookupError, TypeError, AttributeError) as error:
        raise NoAnswer(f"no chat completion: {json.dumps(answer)[:500]}") from error
    if answer.get("model") != model or tokens == 0 or not words:
        raise NoAnswer(f"an empty answer, or another model's: {json.dumps(answer)[:500]}")
    return words


def snapshot(address: str) -> dict[str, Any]:
    """What the sidecar sees of its card and its engines. Raises NoAnswer."""
    seen: dict[str, Any] = _call(f"http://{address}:{names.RUNTIME_PORT}/v1/runtime/snapshot")
    return seen


def _call(url: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON answer to a GET, or with ``body`` to a POST."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    try:
        with _OPENER.open(request, timeout=_ANSWER_WITHIN_S) as answer:
            return json.load(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(f"{url}: {error}") from error
