"""What a sandbox tells a shell of itself."""

import shlex

import pytest

from aibrix_operator.sandbox import display, gateways, operators, state, up
from aibrix_operator.sandbox.state import SandboxError


@pytest.fixture
def sandbox(monkeypatch, tmp_path):
    monkeypatch.setenv("AIBRIX_STATE_DIR", str(tmp_path / "it's here"))
    return state.create("one", (), ("true",))


def test_a_shell_learns_the_cluster_the_gateway_and_the_page(sandbox):
    [(operator, _)] = operators.plan(sandbox, 1)
    [(gateway, _)] = gateways.plan(sandbox, 1)
    assert display.environment(up.find("one")) == [
        f"export KUBECONFIG={shlex.quote(str(sandbox.kubeconfig))}",
        f"export AIBRIX_GATEWAY={gateway.url}",
        f"export AIBRIX_PAGE={operator.page_url}",
    ]


def test_what_a_sandbox_has_not_is_left_out(sandbox):
    [line] = display.environment(up.find("one"))
    assert line.startswith("export KUBECONFIG=")


def test_each_operator_serves_its_page_where_the_sandbox_says(sandbox):
    planned = operators.plan(sandbox, 2)
    assert operators.list_operators(sandbox) == [address for address, _ in planned]
    assert [address.name for address, _ in planned] == ["operator", "operator-2"]
    for address, command in planned:
        assert command[-2:] == ["--page", address.page_url]
        assert f"{address.url}/healthz" in command


def test_no_sandbox_of_that_name_is_an_error(sandbox):
    with pytest.raises(SandboxError, match="there is no sandbox 'two'"):
        up.find("two")
