"""What integration tests share, one each a test session (and xdist worker): an API server, and a whole sandbox."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes.aio import client, config

from aibrix_operator.sandbox import binaries, control_plane, processes, state, up
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.state import Sandbox, SandboxError


@dataclass(frozen=True)
class ApiServer:
    """A running API server without controllers: nothing empties namespaces, collects garbage or schedules Pods."""

    plane: ControlPlane

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    @property
    def url(self) -> str:
        return self.plane.url

    @property
    def token(self) -> str:
        return self.plane.token

    @asynccontextmanager
    async def client(self, kubeconfig: Path | None = None) -> AsyncIterator[client.ApiClient]:
        """An API client: the administrator's, or that of ``kubeconfig`` (see ``ControlPlane.kubeconfig_for``)."""
        api = await config.new_client_from_config(str(kubeconfig or self.kubeconfig))
        async with api:
            yield api


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    programs = binaries.find_binaries((binaries.ETCD, binaries.API_SERVER), report=print)
    plane = control_plane.start_control_plane(
        tmp_path_factory.mktemp("control-plane"), programs, with_controllers=False, dies_with_parent=True
    )
    yield ApiServer(plane)
    plane.stop()


@pytest.fixture
async def namespace(api_server: ApiServer) -> AsyncIterator[str]:
    """A fresh namespace's name. It is not waited for at the end: nothing empties it, and names never repeat."""
    async with api_server.client() as api:
        core = client.CoreV1Api(api)
        made = await core.create_namespace({"metadata": {"generateName": "test-"}})
        yield made.metadata.name
        await core.delete_namespace(made.metadata.name)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_of_killed_sessions() -> None:
    """Sandboxes outlive the process that starts them, so a test session that was killed could not end its own."""
    for left in state.list_sandboxes():
        owner = re.fullmatch(r"(?:test|whole)-(\d+)(?:-\d+)?", left.name)
        if owner and processes.identify(int(owner[1])) is None:
            with contextlib.suppress(SandboxError):  # another worker of this session is at it already
                up.down(left.name)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A whole sandbox: controllers, one simulated H20, the real sidecar in its warm Pod, and the operator."""
    made = up.up(f"whole-{os.getpid()}")
    yield made
    up.down(made.name)
