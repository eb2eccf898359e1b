"""What a kubelet and Prometheus are told by the process."""

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from aibrix_operator.operator.probes import Probes
from aibrix_operator.sandbox.control_plane import free_port


@pytest.fixture
async def told():
    """Start probes and ask them: (status, JSON or text)."""
    state = {"is_ready": False, "missing": ["modelwarmups"]}
    one, other = CollectorRegistry(), CollectorRegistry()
    Gauge("of_one", "", registry=one).set(1)
    Gauge("of_another", "", registry=other).set(2)
    port = free_port()
    probes = Probes(
        f"http://127.0.0.1:{port}/healthz",
        lambda: state["is_ready"],
        lambda: False,
        [one, other, one],
        lambda: state["missing"],
    )
    await probes.start()

    async def ask(path):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    ask.state = state
    yield ask
    await probes.stop()


async def test_readiness_says_what_is_not_installed_and_is_not_kept_back_by_it(told):
    assert await told("/readyz") == (503, {"status": "not ready", "leader": False, "not_installed": ["modelwarmups"]})
    told.state["is_ready"] = True
    assert (await told("/readyz"))[0] == 200
    told.state["missing"] = []
    assert await told("/readyz") == (200, {"status": "ready", "leader": False})
    assert await told("/healthz") == (200, {"status": "ok"})


async def test_registries_of_all_controllers_are_one_page_and_a_shared_one_comes_once(told):
    _, page = await told("/metrics")
    lines = [line for line in page.splitlines() if line.startswith("of_")]
    assert lines == ["of_one 1.0", "of_another 2.0"]


@pytest.mark.parametrize("url", ["https://0.0.0.0:1/h", "http://0.0.0.0/h", "http://0.0.0.0:1/readyz", "h"])
def test_what_is_no_address_for_liveness_is_refused(url):
    with pytest.raises(ValueError, match="no address for liveness"):
        Probes(url, lambda: True, lambda: True, [])
