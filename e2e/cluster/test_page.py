"""Who may port-forward to the operator sees its page, and nobody else does."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.api import ApiServer, eventually
from e2e.cluster import pods
from e2e.cluster.conftest import FirstInstall
from e2e.cluster.release import NAME, NAMESPACE, Releases

PORT = 8090


@pytest.fixture(scope="module")
def page(first_install: FirstInstall, releases: Releases) -> Iterator[str]:
    """Given: `kubectl port-forward` as the guide tells, to a port of its own choice."""
    releases.wait_available()
    command = ["kubectl", f"--kubeconfig={releases.cluster.kubeconfig}", f"--namespace={NAMESPACE}", "port-forward"]
    with subprocess.Popen(
        [*command, f"deploy/{NAME}", f":{PORT}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+) -> ", said)
            assert found, said
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.terminate()


def test_the_page_shows_the_cards_and_the_claim_to_who_may_port_forward(page: str):
    def shown() -> dict[str, Any] | None:
        with contextlib.suppress(OSError):
            frame: dict[str, Any] = json.loads(read(f"{page}/api/frame"))
            claims = {claim["name"]: claim for claim in frame["claims"]}
            return frame if "first" in claims and claims["first"]["states"] == ["serving"] else None
        return None

    frame = eventually("the claim serves, says the page", shown, 60.0)
    assert frame["totals"]["cards"] == 2
    assert all(card["usableBytes"] for card in frame["cards"])
    assert "<!doctype html>" in read(page)


def test_from_another_pod_nothing_answers_there(page: str, releases: Releases, api: ApiServer):
    address = releases.pods("operator")[0]["status"]["podIP"]
    namespace = pods.make_namespace(api, "lookers")
    try:
        status, said = pods.run(api, namespace, f"wget -q -T 3 -O - http://{address}:{PORT}/")
    finally:
        api.delete(f"/api/v1/namespaces/{namespace}")
    assert status != 0, said


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
