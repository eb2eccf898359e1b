"""Sandboxes whose sidecar is the tiny one: what is tested here is the sandbox, not the runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sandbox_probes

from aibrix_operator.sandbox import up
from aibrix_operator.sandbox.state import Sandbox


@pytest.fixture(scope="session")
def tiny_sandbox() -> Iterator[Sandbox]:
    """A sandbox with two cards that the tests share: each waits for two ready Pods before it starts."""
    made = up.up(sandbox_probes.new_name(), sandbox_probes.options(cards=2))
    yield made
    up.down(made.name)


@pytest.fixture
def pods(tiny_sandbox: Sandbox) -> list[up.PodRow]:
    return sandbox_probes.both_ready(tiny_sandbox)
