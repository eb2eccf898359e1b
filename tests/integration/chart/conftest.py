"""API servers of their own for what Helm does to them: Helm takes over no definition that another test has made."""

import json
import ssl
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from aibrix_operator.sandbox import binaries, control_plane

sys.path.append(str(Path(__file__).resolve().parents[2] / "chart"))


@dataclass
class Api:
    """The API server's own paths, as the administrator."""

    session: aiohttp.ClientSession
    url: str
    places: dict[tuple[str, str], tuple[str, bool]]
    """(apiVersion, kind) → plural, and whether it has namespaces."""

    async def ask(self, method, path, body=None):
        """Status and answer."""
        async with self.session.request(method, self.url + path, json=body) as answer:
            text = await answer.text()
            # A path of no kind is answered in plain words.
            return answer.status, json.loads(text) if answer.content_type == "application/json" else {"message": text}

    async def create(self, obj, query=""):
        """Status and answer of creating ``obj``."""
        return await self.ask("POST", f"{await self.path(obj)}{query}", obj)

    async def path(self, obj):
        """Of the collection that ``obj`` belongs to."""
        version, kind = obj["apiVersion"], obj["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self.places:
            _, found = await self.ask("GET", root)
            for each in found["resources"]:
                if "/" not in each["name"]:
                    self.places[version, each["kind"]] = each["name"], each["namespaced"]
        plural, has_namespace = self.places[version, kind]
        return f"{root}/namespaces/{obj['metadata']['namespace']}/{plural}" if has_namespace else f"{root}/{plural}"


@contextmanager
def control_plane_in(directory):
    """A control plane without controllers."""
    programs = binaries.find_binaries((binaries.ETCD, binaries.API_SERVER), report=print)
    plane = control_plane.start_control_plane(directory, programs, with_controllers=False, dies_with_parent=True)
    try:
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="package")
def api_server(tmp_path_factory):
    with control_plane_in(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture
def fresh_api_server(tmp_path_factory):
    """Which no test has used."""
    with control_plane_in(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@asynccontextmanager
async def opened(api_server):
    """The paths of ``api_server``."""
    trust = ssl.create_default_context(cadata=api_server.authority.certificate.decode())
    headers = {"Authorization": f"Bearer {api_server.token}"}
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Api(session, api_server.url, {})


@pytest.fixture
async def api(api_server):
    async with opened(api_server) as paths:
        yield paths


@pytest.fixture
async def fresh_api(fresh_api_server):
    async with opened(fresh_api_server) as paths:
        yield paths
