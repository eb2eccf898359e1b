"""Started stand-in servers."""

import pytest
from artifact_servers import BucketServer, Hub, WebServer, serving

from aibrix_operator.artifacts import fetching

FILES = {"adapter_config.json": b'{"r": 8}', "weights/adapter_model.safetensors": bytes(range(256)) * 20}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Tries follow each other at once."""
    monkeypatch.setattr(fetching, "_FIRST_PAUSE_S", 0.0)


@pytest.fixture
async def start():
    """Start a shelf; its address."""
    servers = []

    async def start(shelf):
        servers.append(await serving(shelf))
        return str(servers[-1].make_url("")).rstrip("/")

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
async def hub(start):
    """A hub with the files, and the environment that leads to it."""
    shelf = Hub(FILES)
    shelf.environment = {"HF_ENDPOINT": await start(shelf)}
    return shelf


@pytest.fixture
async def bucket(start):
    """A bucket server whose bucket ``adapters`` holds the files under ``team/sql``."""
    shelf = BucketServer({f"team/sql/{name}": content for name, content in FILES.items()})
    shelf.credentials = {
        "aws_access_key_id": "AKIDEXAMPLE",
        "aws_secret_access_key": "very-secret-value",
        "aws_region": "eu-1",
        "aws_endpoint_url": await start(shelf),
    }
    return shelf


@pytest.fixture
async def web_server(start):
    """A web server with one file."""
    shelf = WebServer({"adapter.bin": FILES["weights/adapter_model.safetensors"]})
    shelf.url = await start(shelf) + "/files/adapter.bin"
    return shelf
