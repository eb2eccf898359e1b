"""The app over real HTTP: token, odd bodies, errors on the wire, and engines that outlive it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import time

import aiohttp
import pytest
import uvicorn
from fleet_bench import lives

from aibrix_operator.runtime import lifecycle
from aibrix_operator.runtime.app import create_app
from aibrix_operator.runtime.bearer import TokenError
from aibrix_operator.runtime.settings import RuntimeSettings, SleepMode

ACTIVATE = "/v1/runtime/models/activate"


class Api:
    """One served app and a client for it."""

    def __init__(self, app, base, session):
        self.app, self.base, self.session = app, base, session

    @property
    def sidecar(self):
        return self.app.state.sidecar

    async def call(self, method, path, body=None, headers=None):
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | (headers or {})
        async with self.session.request(
            method, self.base + path, data=content, headers=headers, allow_redirects=False
        ) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def post(self, action, **body):
        return await self.call("POST", f"/v1/runtime/models/{action}", body)


@pytest.fixture
async def serve(tmp_path):
    """Serves apps on loopback; they and their engines end with the test."""
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def start(**settings):
            app = create_app(
                RuntimeSettings(
                    **{
                        "engine_host": "127.0.0.1",
                        "engine_python": "/bin/true",
                        "engine_registry_path": tmp_path / "engines.json",
                        "weight_cache_dir": tmp_path,
                        "kv_segment_dir": tmp_path,
                    }
                    | settings
                )
            )
            listener = socket.create_server(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None))
            serving = asyncio.create_task(server._serve([listener]))

            async def end():
                server.should_exit = True
                await serving

            stack.push_async_callback(end)
            while not server.started:
                assert not serving.done(), serving
                await asyncio.sleep(0.01)
            api = Api(app, f"http://127.0.0.1:{port}", session)
            api.end = end
            return api

        yield start


async def test_probes_need_no_token_and_all_else_does(serve, tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    api = await serve(runtime_token_file=tmp_path / "token")
    refusal = (401, {"detail": "a bearer token is needed"})
    assert await api.call("GET", "/healthz") == (200, {"status": "ok"})
    assert await api.call("GET", "/ready") == (200, {"status": "ready"})
    for method, path in (
        ("GET", "/v1/runtime/snapshot"),
        ("GET", "/v1/runtime/changes"),
        ("GET", "/metrics/"),
        ("GET", "/metrics"),
        ("POST", ACTIVATE),
        ("GET", "/nowhere"),
    ):
        assert await api.call(method, path) == refusal
    for given in ("Bearer wrong", "Bearer s3cre", "Bearer ", "s3cret", "Basic s3cret", "Bearer \xff"):
        assert await api.call("GET", "/v1/runtime/snapshot", headers={"Authorization": given}) == refusal
    for given in ("Bearer s3cret", "bearer  s3cret"):
        assert (await api.call("GET", "/v1/runtime/snapshot", headers={"Authorization": given}))[0] == 200


async def test_a_token_that_is_replaced_counts_and_one_that_vanishes_stays(serve, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    api = await serve(runtime_token_file=token)
    (tmp_path / "next").write_text("new")
    (tmp_path / "next").replace(token)
    statuses = [
        (await api.call("GET", "/v1/runtime/snapshot", headers={"Authorization": f"Bearer {word}"}))[0]
        for word in ("old", "new")
    ]
    assert statuses == [401, 200]
    token.unlink()
    assert (await api.call("GET", "/v1/runtime/snapshot", headers={"Authorization": "Bearer new"}))[0] == 200


@pytest.mark.parametrize("content", [None, "", " \n"], ids=["missing", "empty", "blank"])
def test_a_sidecar_without_its_token_does_not_start(tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(TokenError, match="gives no token"):
        create_app(RuntimeSettings(runtime_token_file=tmp_path / "token")).build_middleware_stack()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b'{"model_name":"m","limit_bytes":NaN,"operation_id":"x"}', 422, id="nan"),
        pytest.param(b'{"model_name":"m","limit_bytes":Infinity,"operation_id":"x"}', 422, id="infinity"),
        pytest.param(b'{"model_name":"\\ud800","limit_bytes":1,"operation_id":"x"}', 422, id="half-a-pair"),
        pytest.param(b'{"model_name":"m","limit_bytes":1,"operation_id":"x","\\ud800":1}', 422, id="half-a-pair-key"),
        pytest.param(b'{"model_name":"m","limit_bytes":18446744073709551616,"operation_id":"x"}', 422, id="huge"),
        pytest.param(b'{"model_name":"m","limit_bytes":true,"operation_id":"x"}', 422, id="bool"),
        pytest.param(b'{"model_name":"m","limit_bytes":"1","operation_id":"x"}', 422, id="text"),
        pytest.param(b'{"model_name":' + b"[" * 500 + b"]" * 500 + b"}", 422, id="deep"),
        pytest.param(b"[" * 100_000, 400, id="too-deep"),
        pytest.param(b'{"limit_bytes":' + b"1" * 5_000 + b"}", 400, id="too-many-digits"),
        pytest.param(b'{"model_name"', 422, id="cut"),
        pytest.param(b"\xff\xfe", 422, id="no-utf8"),
        pytest.param(b"", 422, id="nothing"),
        pytest.param(b"null", 422, id="null"),
    ],
)
async def test_odd_bodies_are_refused_and_never_an_error_of_ours(serve, body, status):
    api = await serve()
    answered, content = await api.call("POST", "/v1/runtime/models/kv-limit", body)
    assert answered == status
    assert set(content) == {"detail"}
    if status == 422:
        assert all(set(fault) == {"type", "loc", "msg", "input"} for fault in content["detail"])


async def test_activation_errors_have_the_shape_of_its_success(serve):
    api = await serve(engine_python="/nonexistent")
    status, body = await api.post("activate", model_name="m", artifact_url="x")
    assert status == 500
    assert body["message"].startswith("cannot start /nonexistent")
    assert {**body, "message": ""} == {
        "status": "error",
        "model_name": "m",
        "port": 0,
        "ipc_name": "",
        "message": "",
    }


async def test_parallelism_without_gpus_cannot_be_checked(serve):
    api = await serve()
    config = {"args": {"--tensor-parallel-size": "2"}}
    status, body = await api.post("activate", model_name="m", artifact_url="x", engine_config=config)
    assert (status, body["message"]) == (
        500,
        "cannot validate vLLM TP/PP topology because no GPUs are visible to the runtime",
    )


async def test_an_engine_that_failed_for_good_is_not_activated(serve):
    api = await serve()
    await api.post("activate", model_name="m", artifact_url="x")
    fleet = api.sidecar.fleet
    async with fleet.operation_lock:
        record = fleet.records["m"]
        for _ in range(6):
            record = lifecycle.die(record, fleet.clock())
        fleet.put(record)
    status, body = await api.post("activate", model_name="m", artifact_url="x")
    assert (status, body["message"]) == (
        500,
        "model 'm' exhausted its local restart budget; deactivate it before activating again",
    )
    assert await api.post("deactivate", model_name="m") == (200, {"status": "success"})


async def test_a_stop_that_cannot_be_sent_is_a_bare_error_and_noted(serve, monkeypatch):
    api = await serve(engine_python="/bin/sleep")
    fleet = api.sidecar.fleet
    monkeypatch.setattr(type(fleet.kinds.launched_as("vllm")), "command", lambda *_: ["sleep", "60"])
    await api.post("activate", model_name="m", artifact_url="x")
    pid = fleet.records["m"].process.pid

    def refuse(*_):
        raise PermissionError("not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", refuse)
        assert await api.post("deactivate", model_name="m") == (500, "Internal Server Error")
    _, snapshot = await api.call("GET", "/v1/runtime/snapshot")
    assert snapshot["models"][0]["last_error"] == "stop failed: not permitted"
    assert await api.post("deactivate", model_name="m") == (200, {"status": "success"})
    deadline = time.monotonic() + 20
    while fleet.records:  # the supervisor collects it
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert not lives(pid)


async def test_engines_outlive_the_app(serve, monkeypatch):
    api = await serve()
    monkeypatch.setattr(type(api.sidecar.fleet.kinds.launched_as("vllm")), "command", lambda *_: ["sleep", "60"])
    await api.post("activate", model_name="m", artifact_url="x")
    process = api.sidecar.fleet.records["m"].process
    try:
        await api.end()
        assert lives(process.pid)
        again = await serve()
        assert again.sidecar.fleet.records["m"].process == process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, process.pid, 0)


@pytest.mark.parametrize(
    ("mode", "seen", "flag"),
    [
        (SleepMode.AUTO, False, False),
        (SleepMode.AUTO, True, True),
        (SleepMode.ON, False, True),
        (SleepMode.OFF, True, False),
    ],
)
async def test_engines_are_started_able_to_sleep_where_the_platform_takes_it(serve, monkeypatch, mode, seen, flag):
    api = await serve(engine_sleep_mode=mode)
    fleet = api.sidecar.fleet
    fleet.nvml._has_seen_a_gpu = seen
    launched = []
    launch = fleet.launcher.launch
    monkeypatch.setattr(fleet.launcher, "launch", lambda argv, env: launched.append(argv) or launch(argv, env))
    await api.post("activate", model_name="m", artifact_url="x")
    assert ("--enable-sleep-mode" in launched[0]) is flag


async def test_docs_are_off_unless_asked_for(serve):
    assert (await (await serve()).call("GET", "/openapi.json"))[0] == 404
    assert (await (await serve(runtime_docs=True)).call("GET", "/openapi.json"))[0] == 200
