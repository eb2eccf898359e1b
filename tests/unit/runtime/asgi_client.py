"""A client of an app that is served on loopback, its lifespan running."""

import asyncio
import contextlib
import json
import socket

import uvicorn
from aiohttp import ClientSession


class Client:
    """``await client(method, path, body)`` gives status, and JSON or text."""

    def __init__(self, app, base, session):
        self._app, self._base, self._session = app, base, session

    @property
    def adapters(self):
        return self._app.state.adapters

    @property
    def downloads(self):
        return self._app.state.downloads

    async def __call__(self, method, path, body=None):
        async with self._session.request(method, self._base + path, json=body) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text


@contextlib.asynccontextmanager
async def client_of(app):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None))
    serving = asyncio.create_task(server._serve([listener]))
    try:
        while not server.started:
            assert not serving.done(), serving
            await asyncio.sleep(0.005)
        async with ClientSession() as session:
            yield Client(app, f"http://127.0.0.1:{port}", session)
    finally:
        server.should_exit = True
        await serving
