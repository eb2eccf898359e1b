"""A gateway of the sandbox, as clients, and those who look after it, see it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aibrix_operator.sandbox import gateways
from aibrix_operator.sandbox.state import Sandbox


@dataclass(frozen=True)
class Reply:
    """What a client got. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> tuple[str, str | None, str | None, str | None]:
        """(message, type, code, param)"""
        found = self.body["error"]
        return found["message"], found["type"], found["code"], found["param"]

    @property
    def told(self) -> tuple[int, str | None, str]:
        """(status, Retry-After, message) of a refusal."""
        return self.status, self.headers.get("retry-after"), self.error[0]


@dataclass(frozen=True)
class Gateway:
    """One replica."""

    address: gateways.GatewayAddress
    pod_name: str
    """The value of ``gateway_pod`` in its metrics."""

    def chat(self, model: str, *, strategy: str = "", timeout_s: float = 60.0, **more: Any) -> Reply:
        """One question."""
        body = {"model": model, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 8} | more
        headers = {"content-type": "application/json"} | ({"routing-strategy": strategy} if strategy else {})
        return self.ask("POST", "/v1/chat/completions", body, headers, timeout_s)

    def burst(self, model: str, requests: int) -> list[Reply]:
        """Questions side by side, as many clients ask them."""
        futures = [self.start_chat(model) for _ in range(requests)]
        return [future.result(timeout=60) for future in futures]

    def start_chat(self, model: str, **more: Any) -> Future[Reply]:
        """A question whose answer is not waited for. ``more``: as of ``chat``."""
        answer = Future[Reply]()

        def run() -> None:
            try:
                answer.set_result(self.chat(model, **more))
            except (OSError, http.client.HTTPException) as error:
                answer.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return answer

    def models(self) -> dict[str, Any]:
        """Model → what the list of models says of it."""
        return {model["id"]: model for model in self.ask("GET", "/v1/models").body["data"]}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Reply:
        return _exchange(self.address.url, method, path, body, headers or {}, timeout_s)

    def look(self, path: str) -> Reply:
        """Ask the port that kubelets and Prometheus ask."""
        return _exchange(self.address.api_url, "GET", path, None, {}, 10.0)

    def metric(self, name: str, **labels: str) -> float:
        """One sample of its metrics; 0 when it is not there."""
        wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        start = f"{name}{{{wanted}}} " if wanted else f"{name} "
        lines = (line for line in self.look("/metrics").text.splitlines() if line.startswith(start))
        return next((float(line.removeprefix(start)) for line in lines), 0.0)


def gateways_of(sandbox: Sandbox) -> list[Gateway]:
    return [Gateway(a, f"{sandbox.name}-{a.name}") for a in gateways.list_gateways(sandbox)]


def _exchange(url: str, method: str, path: str, body: Any, headers: Mapping[str, str], timeout_s: float) -> Reply:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), dict(headers))
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read().decode())
    finally:
        connection.close()
