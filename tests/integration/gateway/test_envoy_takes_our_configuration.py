"""Envoy itself checks what we write for it."""

import subprocess
from collections import defaultdict
from dataclasses import replace

import pytest

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.envoy import config, process
from aibrix_operator.gateway.envoy.settings import EnvoySettings

TCP = EnvoySettings()
UNIX = replace(TCP, **{name: Address(path=f"/run/{name}") for name in ("admin", "questions", "reports", "api")})
ODD = replace(TCP, listen=Address("::", 80), timeout_s=0.5, log_flush_s=1.25, body_limit_bytes=1, node_id='"a b"')


@pytest.mark.parametrize("settings", [TCP, UNIX, ODD], ids=["TCP", "Unix sockets", "odd values"])
def test_envoy_accepts_the_configuration(settings, tmp_path):
    path = tmp_path / "envoy.json"
    config.write_config(settings, path)
    done = subprocess.run(
        [process.find(), "--mode", "validate", "-c", path, "--disable-hot-restart", "-l", "error"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK" in done.stdout
    assert [found.name for found in tmp_path.iterdir()] == ["envoy.json"]


def test_the_configuration_is_a_function_of_its_settings():
    assert config.bootstrap(TCP) == config.bootstrap(EnvoySettings())
    assert config.bootstrap(TCP) != config.bootstrap(ODD)


def members(node):
    """Every (key, value) of the document."""
    yield from node.items() if isinstance(node, dict) else []
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from members(child)


def test_one_timeout_covers_every_layer_and_a_stream_may_last():
    found = defaultdict(set)
    for key, value in members(config.bootstrap(replace(TCP, timeout_s=77.0))):
        if "timeout" in key:
            found[key].add(value)
    assert found == {
        "stream_idle_timeout": {"77.0s"},
        "request_headers_timeout": {"77.0s"},
        "message_timeout": {"77.0s"},
        "idle_timeout": {"77.0s", "4.0s"},  # of clients' connections, and of those to engines
        "timeout": {"77.0s", "0s"},  # of our own servers; a request to an engine has no limit as a whole
        "connect_timeout": {"6.0s", "1s"},
    }


def test_internal_headers_go_before_anything_else():
    (listener,) = config.bootstrap(TCP)["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    (early,) = manager["early_header_mutation_extensions"]
    removed = {mutation.get("remove") for mutation in early["typed_config"]["mutations"]}
    assert {*headers.INTERNAL, "x-request-id"} <= removed


def test_nothing_is_retried():
    assert not [key for key, _ in members(config.bootstrap(TCP)) if "retry" in key or "retries" in key]
