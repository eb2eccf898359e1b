"""Who has no token starts and stops nothing, and the gateway is no way round it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from aibrix_operator.api import names
from aibrix_operator.gateway import headers
from aibrix_operator.runtime.app import create_app
from aibrix_operator.runtime.settings import RuntimeSettings
from e2e.api import ApiServer, eventually
from e2e.cluster import pods
from e2e.cluster.conftest import FirstInstall
from e2e.cluster.release import Releases
from e2e.gateway import Gateway

OPEN = {"/healthz", "/ready"}
"""What a kubelet asks, which has no token."""
ENGINE_CALLS = (
    "/sleep?level=1",
    "/wake_up",
    "/is_sleeping",
    "/health",
    "/metrics",
    "/v1/load_lora_adapter",
    "/server_info",
)
REFUSED = {400, 404, 405, 501}
"""What the gateway says by itself to what it does not know; an engine or a sidecar would say 2xx or 401."""

_ASK_ALL = """
import http.client, json, sys
address, port, calls, tokens = sys.argv[1], 8080, json.loads(sys.argv[2]), json.loads(sys.argv[3])
told = []
for method, path in calls:
    for token in tokens:
        connection = http.client.HTTPConnection(address, port, timeout=5)
        headers = {"Content-Type": "application/json", "X-AIBrix-Operator-Term": "2099-01-01T00:00:00Z/1"}
        if token:
            headers["Authorization"] = token
        connection.request(method, path, "{}" if method == "POST" else None, headers)
        told.append([method, path, token, connection.getresponse().status])
        connection.close()
print(json.dumps(told))
"""


def runtime_calls() -> list[tuple[str, str]]:
    """Every call that a sidecar knows, from the program itself."""
    paths = create_app(RuntimeSettings()).openapi()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() for method in methods)


@pytest.fixture(scope="module")
def strangers(api: ApiServer) -> Iterator[str]:
    yield pods.make_namespace(api, "strangers")
    api.delete("/api/v1/namespaces/strangers")


@pytest.fixture(scope="module")
def gateway(first_install: FirstInstall, releases: Releases) -> Gateway:
    """Given: a gateway that serves ``first-model``."""
    found = releases.gateway()
    eventually("the gateway answers", lambda: found.chat("first-model").status == 200, 60.0)
    return found


@pytest.fixture(scope="module")
def engine(first_install: FirstInstall) -> tuple[str, int]:
    """Address and port of the engine of ``first-model``."""
    (instance,) = first_install.pool.claim("first")["status"]["instances"]
    pod = next(pod for pod in first_install.pool.pods() if pod["metadata"]["name"] == instance["pod"])
    return pod["status"]["podIP"], int(
        json.loads(pod["metadata"]["annotations"][names.route_annotation("first")])["port"]
    )


def test_a_pod_without_the_token_is_refused_by_every_call_of_a_sidecar(
    api: ApiServer, first_install: FirstInstall, strangers: str, engine: tuple[str, int], gateway: Gateway
):
    closed = [call for call in runtime_calls() if call[1] not in OPEN]
    tokens = ["", "Bearer guessed", "Bearer ", "Basic Z3Vlc3NlZA=="]
    arguments = [engine[0], json.dumps([*closed, *(("GET", path) for path in OPEN)]), json.dumps(tokens)]

    told = json.loads(pods.run_python(api, strangers, _ASK_ALL, arguments))

    assert len(closed) >= 10
    assert {status for _, path, _, status in told if path in OPEN} == {200}
    assert [row for row in told if row[1] not in OPEN and row[3] != 401] == []
    assert gateway.chat("first-model").status == 200


def _internal_headers(engine: tuple[str, int]) -> list[dict[str, str]]:
    """Words by which the gateway itself, or an Envoy that trusts its clients, says where a request goes."""
    address, port = engine
    found: list[dict[str, str]] = [{}]
    for place in (f"{address}:{names.RUNTIME_PORT}", f"{address}:{port}"):
        found += [{name: place} for name in headers.INTERNAL]
        found += [{name: place} for name in ("x-envoy-original-dst-host", "x-forwarded-host", "x-original-url")]
        found.append({"host": place})
        found.append({headers.TARGET: place, headers.REWRITE_PATH: "/v1/runtime/snapshot", "host": place})
    return found


def test_no_header_leads_through_the_gateway_to_a_sidecar_or_past_an_engines_door(
    gateway: Gateway, engine: tuple[str, int]
):
    calls = [*runtime_calls(), *((method, path) for path in ENGINE_CALLS for method in ("GET", "POST"))]
    calls.remove(("GET", "/v1/models"))  # the gateway has its own answer to that
    through = []
    for method, path in calls:
        for said in _internal_headers(engine):
            reply = gateway.ask(method, path, {} if method == "POST" else None, said)
            if reply.status not in REFUSED:
                through.append((method, path, said, reply.status, reply.text[:80]))
    assert through == []
    assert gateway.chat("first-model").status == 200


def test_a_question_goes_to_its_engine_whatever_its_headers_say(gateway: Gateway, engine: tuple[str, int]):
    body = {"model": "first-model", "max_tokens": 1, "messages": [{"role": "user", "content": "Who are you?"}]}
    for said in _internal_headers(engine):
        reply = gateway.ask("POST", "/v1/chat/completions", body, {"content-type": "application/json"} | said)
        assert (reply.status, reply.body.get("object")) == (200, "chat.completion"), said


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/v1/chat/completions/../../runtime/snapshot", id="dots"),
        pytest.param("/v1/chat/completions/%2e%2e/%2e%2e/runtime/snapshot", id="encoded-dots"),
        pytest.param("/v1/models/../runtime/snapshot", id="dots-behind-our-own-api"),
        pytest.param("//v1/runtime/snapshot", id="double-slash"),
        pytest.param("/v1%2fruntime%2fsnapshot", id="encoded-slash"),
        pytest.param("http://{engine}/is_sleeping", id="absolute"),
        pytest.param("http://{sidecar}/v1/runtime/snapshot", id="absolute-to-the-sidecar"),
    ],
)
def test_no_spelling_of_a_path_leads_there(gateway: Gateway, engine: tuple[str, int], target: str):
    address, port = engine
    path = target.format(engine=f"{address}:{port}", sidecar=f"{address}:{names.RUNTIME_PORT}")
    status, text = _raw(gateway, "GET", path)
    assert status in REFUSED, text


def test_the_gateway_opens_no_tunnel(gateway: Gateway, engine: tuple[str, int]):
    status, text = _raw(gateway, "CONNECT", f"{engine[0]}:{names.RUNTIME_PORT}")
    assert status in REFUSED, text


def _raw(gateway: Gateway, method: str, target: str) -> tuple[int, Any]:
    """A request whose first line no client library has tidied up."""
    host, _, port = gateway.address.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(connection, method="GET")
        answer.begin()
        return answer.status, answer.read().decode(errors="replace")
