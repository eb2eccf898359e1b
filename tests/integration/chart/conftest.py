"""An API server of its own for what Helm does to it: Helm takes over no definition that another test has made."""

import json
import ssl
import sys
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


@pytest.fixture(scope="package")
def api_server(tmp_path_factory):
    """A control plane without controllers."""
    programs = binaries.find_binaries((binaries.ETCD, binaries.API_SERVER), report=print)
    plane = control_plane.start_control_plane(
        tmp_path_factory.mktemp("control-plane"), programs, with_controllers=False, dies_with_parent=True
    )
    yield plane
    plane.stop()


@pytest.fixture
async def api(api_server):
    trust = ssl.create_default_context(cadata=api_server.authority.certificate.decode())
    headers = {"Authorization": f"Bearer {api_server.token}"}
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Api(session, api_server.url, {})
