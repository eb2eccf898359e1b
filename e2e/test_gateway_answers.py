"""What clients are told while a model has no engine: each state of a route, on a Pod that the test itself annotates.

Under the prefix of older controllers: the operator would take a route of its own away that no claim of its is behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aibrix_operator.api import names
from e2e.api import ApiServer, eventually
from e2e.gateway import Gateway, Reply

NAMESPACE = "by-hand"
POD = f"/api/v1/namespaces/{NAMESPACE}/pods/by-hand"


class Pod:
    """A Pod of no pool: no operator changes what it carries."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api

    def route(self, model: str, **route: Any) -> None:
        """Its one route, for the claim ``c``."""
        text = json.dumps({"model": model, "port": 0, "wakeByRequest": True} | route)
        kept = self.api.get(POD)["metadata"].get("annotations", {})
        annotations: dict[str, str | None] = dict.fromkeys(kept)
        self.api.patch(POD, {"metadata": {"annotations": annotations | {names.OLD_ROUTE_PREFIX + "c": text}}})

    def set_ready(self, status: str) -> None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        kept = [c for c in self.api.get(POD)["status"]["conditions"] if c["type"] != "Ready"]
        self.api.patch(f"{POD}/status", {"status": {"conditions": [*kept, condition]}})


@pytest.fixture(scope="module")
def pod(sandbox, api: ApiServer) -> Iterator[Pod]:
    if not api.exists(f"/api/v1/namespaces/{NAMESPACE}"):
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    body = {"metadata": {"name": "by-hand"}, "spec": {"containers": [{"name": "engine", "image": "none"}]}}
    eventually("its account is there", lambda: api.exists(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))
    api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", body)
    eventually("it is ready", lambda: _is_ready(api))
    yield Pod(api)
    api.delete(POD)


def _is_ready(api: ApiServer) -> bool:
    found = api.get(POD).get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found)


@pytest.mark.acceptance("GW-102")
@pytest.mark.acceptance("39")
@pytest.mark.parametrize(
    ("state", "why", "retry_after", "text"),
    [
        ("activating", "", "10", "is activating; retry shortly"),
        ("failed", "EngineFailed", "10", "is failed (EngineFailed); retry shortly"),
        ("sleeping", "WaitingForRoom", "20", "is sleeping (WaitingForRoom); retry shortly"),
        ("failed", "Moving", "30", "is failed (Moving); retry shortly"),
    ],
)
def test_gw102_each_state_of_a_route_has_its_words_and_its_wait(
    pod: Pod, gateway: Gateway, state, why, retry_after, text
):
    model = f"told-{state}-{why or 'plain'}".lower()
    pod.route(model, state=state, **({"reason": why} if why else {}))
    wanted = (503, retry_after, f"model {model} {text}")
    eventually("the gateway knows", lambda: model in gateway.models(), 10.0)
    reply = gateway.chat(model)
    assert reply.told == wanted
    assert reply.error[1:] == ("overloaded_error", "service_unavailable", "model")
    assert reply.headers["x-error-no-model-backends"] == model
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.acceptance("4")
@pytest.mark.acceptance("GW-103")
def test_mc04_an_active_route_on_a_pod_that_is_not_ready_is_no_target(pod: Pod, gateway: Gateway):
    pod.route("unready", state="active", port=20000)
    wanted = (503, None, "error on getting pods for model unready")

    def refused() -> Reply | None:
        """The Pod's kubelet soon says again that it is ready, so each look begins with the opposite."""
        pod.set_ready("False")
        reply = gateway.chat("unready")
        return reply if reply.status == 503 and reply.told == wanted else None

    reply = eventually("the gateway says so", refused)
    assert reply.error[1:] == ("overloaded_error", "service_unavailable", None)
    assert reply.headers["x-error-no-model-backends"] == "true"
    pod.set_ready("True")
    eventually("it is a target again", lambda: gateway.models()["unready"]["status"] == "active")
