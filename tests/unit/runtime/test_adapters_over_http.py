"""The routes about adapters and downloads: files first, then the engine, and nothing twice."""

import asyncio
import time

import aiohttp
import pytest
from adapter_bench import AdapterEngineStandIn
from aiohttp import web
from aiohttp.test_utils import TestServer
from asgi_client import client_of

from aibrix_operator.artifacts import fetching
from aibrix_operator.runtime import adapter_engine
from aibrix_operator.runtime.app import create_app
from aibrix_operator.runtime.settings import RuntimeSettings

LOAD, UNLOAD = "/v1/lora_adapter/load", "/v1/lora_adapter/unload"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(adapter_engine, "PAUSE_S", 0.0)
    monkeypatch.setattr(fetching, "_FIRST_PAUSE_S", 0.0)


@pytest.fixture
async def engine(request):
    """The engine beside the sidecar; a test may ask for SGLang's paths."""
    stand_in = AdapterEngineStandIn(*getattr(request, "param", ()))
    server = TestServer(stand_in.app)
    await server.start_server()
    stand_in.url = str(server.make_url("")).rstrip("/")
    yield stand_in
    await server.close()


@pytest.fixture
async def files():
    """A web server with an adapter; ``gate`` holds answers back."""
    held = asyncio.Event()
    held.set()

    async def get(request):
        await held.wait()
        if request.match_info["name"] not in content:
            return web.Response(status=404)
        if request.headers.get("Authorization", "Basic right") != "Basic right":
            return web.Response(status=403, text="you sent " + request.headers["Authorization"])
        return web.Response(body=content[request.match_info["name"]])

    content = {"adapter_config.json": b"{}", "other.json": b"{1}"}
    app = web.Application()
    app.router.add_get("/{name}", get)
    server = TestServer(app)
    await server.start_server()
    server.gate, server.base = held, str(server.make_url("")).rstrip("/")
    yield server
    held.set()
    await server.close()


@pytest.fixture
async def call(tmp_path, engine):
    """Call the sidecar: ``await call(method, path, body)`` gives status and JSON or text."""
    app = create_app(
        RuntimeSettings(
            engine_registry_path=tmp_path / "engines.json",
            weight_cache_dir=tmp_path,
            kv_segment_dir=tmp_path,
            adapter_dir=tmp_path / "adapters",
            adapter_credentials_dir=tmp_path / "secrets",
            download_dir=tmp_path / "models",
            inference_engine=getattr(engine, "kind", "vllm"),
            inference_engine_endpoint=engine.url,
            inference_engine_api_key="own-key",
        )
    )
    async with client_of(app) as client:
        yield client


async def test_an_adapter_is_fetched_and_then_loaded_from_its_own_folder(call, engine, files, tmp_path):
    body = {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"}
    folder = tmp_path / "adapters" / "sql"
    status, answer = await call("POST", LOAD, body)
    assert (status, answer["status"], answer["local_path"]) == (200, "success", str(folder))
    assert answer["engine_response"] == {"message": "Success"}
    assert (folder / "adapter_config.json").read_bytes() == b"{}"
    assert engine.calls == [("load_lora_adapter", {"lora_name": "sql", "lora_path": str(folder)}, "Bearer own-key")]


async def test_an_engine_that_restarts_is_given_the_same_path_again(call, engine, files):
    body = {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"}
    await call("POST", LOAD, body)
    engine.loaded.clear()
    assert (await call("POST", LOAD, body))[0] == 200
    first, second = engine.named("load_lora_adapter")
    assert first == second


async def test_a_load_that_was_done_is_a_success(call, engine, files):
    body = {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"}
    await call("POST", LOAD, body)
    assert (await call("POST", LOAD, body))[0] == 200


async def test_another_address_replaces_files_and_what_the_engine_has(call, engine, files, tmp_path):
    await call("POST", LOAD, {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"})
    assert (await call("POST", LOAD, {"lora_name": "sql", "artifact_url": files.base + "/other.json"}))[0] == 200
    assert [name for name, *_ in engine.calls] == ["load_lora_adapter", "unload_lora_adapter", "load_lora_adapter"]
    assert {path.name for path in (tmp_path / "adapters/sql").iterdir() if path.name[0] != "."} == {"other.json"}


async def test_a_path_goes_to_the_engine_as_it_is(call, engine):
    assert (await call("POST", LOAD, {"lora_name": "sql", "artifact_url": "/mnt/sql"}))[0] == 200
    assert engine.named("load_lora_adapter") == [{"lora_name": "sql", "lora_path": "/mnt/sql"}]


async def test_a_load_by_path_passes_the_engines_words_on(call, engine):
    assert await call("POST", LOAD, {"lora_name": "sql", "lora_path": "org/sql"}) == (200, "Success")
    engine.answers = [(404, "No adapter found")]
    status, answer = await call("POST", LOAD, {"lora_name": "two", "lora_path": "nope"})
    assert (status, answer["object"], answer["message"], answer["code"]) == (404, "error", "No adapter found", 404)


@pytest.mark.acceptance("MA-33")
@pytest.mark.parametrize("name", ["a.b", "", "-a", "../x", "a/b", "x" * 101, "a b"])
async def test_a_name_that_engines_refuse_is_refused_before_any_call(call, engine, name):
    for path, body in ((LOAD, {"artifact_url": "/a"}), (LOAD, {"lora_path": "/a"}), (UNLOAD, {})):
        status, answer = await call("POST", path, {"lora_name": name, **body})
        assert (status, "no name of an adapter" in answer["error"]) == (500, True)
    assert engine.calls == []


@pytest.mark.parametrize("url", ["ms://a/b", "aabbcc", "huggingface://"])
async def test_an_address_that_is_none_is_told(call, engine, url):
    status, answer = await call("POST", LOAD, {"lora_name": "sql", "artifact_url": url})
    assert (status, url in answer["error"], engine.calls) == (500, True, [])


async def test_an_artifact_that_is_not_there_is_told_and_nothing_is_loaded(call, engine, files):
    status, answer = await call("POST", LOAD, {"lora_name": "sql", "artifact_url": files.base + "/nothing"})
    assert (status, "is not there" in answer["error"], engine.calls) == (500, True, [])


async def test_wrong_credentials_are_told_without_them(call, files):
    body = {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"}
    status, answer = await call("POST", LOAD, body | {"credentials": {"authorization": "Basic wrong"}})
    assert (status, "is not allowed" in answer["error"], "Basic" in answer["error"]) == (500, True, False)
    assert (await call("POST", LOAD, body | {"credentials": {"authorization": "Basic right"}}))[0] == 200


async def test_mounted_credentials_are_read_and_config_lies_over_them(call, files, tmp_path):
    secret = tmp_path / "secrets" / "team-a"
    secret.mkdir(parents=True)
    (secret / "authorization").write_text("Basic wrong\n")
    (secret / "..data").mkdir()
    body = {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json", "credentials_secret": "team-a"}
    assert "is not allowed" in (await call("POST", LOAD, body))[1]["error"]
    assert (await call("POST", LOAD, body | {"additional_config": {"authorization": "Basic right"}}))[0] == 200


@pytest.mark.parametrize("secret", ["absent", "../..", "A"])
async def test_mounted_credentials_that_cannot_be_read_are_told(call, engine, secret):
    status, answer = await call("POST", LOAD, {"lora_name": "a", "artifact_url": "/a", "credentials_secret": secret})
    assert (status, "Secret" in answer["error"], engine.calls) == (500, True, [])


async def test_an_engine_that_fails_is_asked_three_times_and_its_words_are_passed_on(call, engine):
    engine.answers = [(503, "busy"), (503, "busy")]
    assert (await call("POST", LOAD, {"lora_name": "sql", "artifact_url": "/a"}))[0] == 200
    engine.answers = [(500, "CUDA out of memory")] * 3
    status, answer = await call("POST", LOAD, {"lora_name": "two", "artifact_url": "/a"})
    assert (status, answer["error"], engine.answers) == (500, "CUDA out of memory", [])


async def test_an_engine_that_is_away_is_told(call, engine, monkeypatch):
    monkeypatch.setattr(call.adapters.engine, "_endpoint", "http://127.0.0.1:9")
    status, answer = await call("POST", LOAD, {"lora_name": "sql", "artifact_url": "/a"})
    assert (status, "cannot connect" in answer["error"]) == (500, True)
    status, answer = await call("GET", "/v1/models")
    assert (status, answer["type"]) == (503, "ConnectionError")


async def test_an_engine_that_does_not_answer_is_asked_once(call, engine, monkeypatch):
    asked = []

    async def hang(request):
        asked.append(request.path)
        await asyncio.sleep(60)

    app = web.Application()
    app.router.add_get("/v1/models", hang)
    server = TestServer(app)
    await server.start_server()
    monkeypatch.setattr(adapter_engine, "TIMEOUT", aiohttp.ClientTimeout(total=1.0))  # time enough to be asked
    monkeypatch.setattr(call.adapters.engine, "_endpoint", str(server.make_url("")).rstrip("/"))
    status, answer = await call("GET", "/v1/models")
    assert (status, answer["type"], asked) == (408, "TimeoutError", ["/v1/models"])
    await server.close()


@pytest.mark.acceptance("MA-32")
async def test_unload_takes_engine_and_files(call, engine, files, tmp_path):
    await call("POST", LOAD, {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"})
    status, answer = await call("POST", UNLOAD, {"lora_name": "sql", "cleanup_local": True})
    assert (status, answer["status"], engine.loaded) == (200, "success", {})
    assert not (tmp_path / "adapters/sql").exists()
    assert (await call("POST", UNLOAD, {"lora_name": "sql"}))[0] == 200  # nothing is there any more


async def test_unload_leaves_the_files_when_told_to(call, files, tmp_path):
    await call("POST", LOAD, {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"})
    for body in ({"cleanup_local": False}, {"lora_int_id": 3}):
        assert (await call("POST", UNLOAD, {"lora_name": "sql", **body}))[0] == 200
    assert (tmp_path / "adapters/sql/adapter_config.json").exists()


async def test_unload_removes_the_files_though_the_engine_fails(call, engine, files, tmp_path):
    await call("POST", LOAD, {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"})
    engine.answers = [(500, "stuck")] * 3
    status, answer = await call("POST", UNLOAD, {"lora_name": "sql"})
    assert (status, "stuck" in answer["message"]) == (200, True)
    assert not (tmp_path / "adapters/sql").exists()


async def test_unload_tells_of_files_that_stay(call, tmp_path):
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters/sql").write_text("no folder")
    status, answer = await call("POST", UNLOAD, {"lora_name": "sql"})
    assert (status, "its files stay" in answer["message"]) == (200, True)


async def test_a_load_whose_caller_went_away_goes_on_and_the_next_one_finds_it(call, engine, files):
    body = {"lora_name": "sql", "artifact_url": files.base + "/adapter_config.json"}
    files.gate.clear()
    first = asyncio.create_task(call("POST", LOAD, body))
    second = asyncio.create_task(call("POST", LOAD, body))
    await asyncio.sleep(0)
    files.gate.set()
    assert [(await each)[0] for each in (first, second)] == [200, 200]
    assert set(engine.loaded) == {"sql"}


@pytest.mark.parametrize("engine", [("",)], indirect=True)
async def test_sglang_has_paths_of_its_own(engine, tmp_path):
    session = aiohttp.ClientSession()
    address = adapter_engine.EngineAddress(engine.url, "sglang", "")
    sglang = adapter_engine.AdapterEngine(session, address)
    assert await sglang.load("sql", "/a") == "Success"
    assert await sglang.unload("sql") == "Success"
    assert [authorization for *_, authorization in engine.calls] == [None, None]
    await session.close()


async def test_unknown_fields_are_refused(call, engine):
    for path in (LOAD, UNLOAD, "/v1/model/download"):
        body = {"lora_name": "a", "artifact_url": "/a", "model_uri": "/a", "surplus": 1}
        assert (await call("POST", path, body))[0] == 422
    assert engine.calls == []


async def test_the_engines_list_is_passed_on(call, engine):
    engine.loaded["sql"] = "/a"
    assert await call("GET", "/v1/models") == (200, {"object": "list", "data": [{"id": "sql"}]})
    engine.answers = [(404, "{}")]
    assert (await call("GET", "/v1/models"))[0] == 404


async def _until(ask, wanted):
    deadline = time.monotonic() + 10
    while await ask() != wanted:
        assert time.monotonic() < deadline, f"not within 10 s: {wanted}"
        await asyncio.sleep(0.005)


async def test_a_model_is_downloaded_beside_and_its_state_is_told(call, files, tmp_path):
    body = {"model_uri": files.base + "/adapter_config.json"}
    expected = {
        "model_name": "adapter_config.json",
        "model_root_path": str(tmp_path / "models/adapter_config.json"),
        "source": "https",
    }
    assert await call("POST", "/v1/model/download", body) == (200, expected | {"model_status": "downloading"})

    async def again():
        return await call("POST", "/v1/model/download", body)

    await _until(again, (200, expected | {"model_status": "downloaded"}))
    listed = {"object": "list", "data": [expected | {"model_status": "downloaded"}]}
    assert await call("GET", "/v1/model/list") == (200, listed)
    assert (await call("GET", "/v1/model/list", {"local_dir": str(tmp_path / "nowhere")}))[1]["data"] == []


async def test_a_download_that_failed_is_no_operation_and_can_be_asked_for_again(call, files, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere/org/name"
    folder.mkdir(parents=True)
    (folder / ".aibrix_download_state").write_text('{"url": "huggingface://org/name", "versions": {}}')
    (state,) = (await call("GET", "/v1/model/list", {"local_dir": str(tmp_path / "elsewhere")}))[1]["data"]
    assert (state["model_name"], state["source"], state["model_status"]) == ("org/name", "huggingface", "no_operation")
    config = {"hf_endpoint": files.base, "hf_token": "t", "hf_revision": None}
    body = {"model_uri": "org/name", "local_dir": str(tmp_path / "elsewhere"), "download_extra_config": config}
    assert (await call("POST", "/v1/model/download", body))[1]["model_status"] == "downloading"

    async def state_now():
        return (await call("GET", "/v1/model/list", {"local_dir": str(tmp_path / "elsewhere")}))[1]["data"]

    await _until(state_now, [state])


async def test_a_download_under_way_ends_with_the_sidecar(call, files):
    files.gate.clear()
    await call("POST", "/v1/model/download", {"model_uri": files.base + "/adapter_config.json"})
    downloads = call.downloads
    await downloads.close()
    assert not downloads._tasks


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model_uri": "ms://a/b"}, 422),
        ({"model_uri": "s3://b/p", "local_dir": "relative"}, 422),
        ({"model_uri": "s3://b/p", "model_name": "../out"}, 422),
    ],
)
async def test_a_download_that_cannot_begin_is_refused(call, body, status):
    answered, answer = await call("POST", "/v1/model/download", body)
    assert (answered, answer["type"]) == (status, "InvalidArgumentError")


async def test_a_path_needs_no_download(call, tmp_path):
    here, nowhere = str(tmp_path), str(tmp_path / "nowhere")
    for uri, state in ((here, "downloaded"), (nowhere, "not_exist")):
        status, answer = await call("POST", "/v1/model/download", {"model_uri": uri})
        assert (status, answer["model_status"], answer["model_root_path"]) == (200, state, uri)


async def test_a_book_that_cannot_be_read_is_no_model(call, tmp_path):
    for name, text in (("broken", "{"), ("strange", '{"url": "ms://x", "versions": {}}')):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / ".aibrix_download_state").write_text(text)
    (state,) = (await call("GET", "/v1/model/list"))[1]["data"]
    assert (state["model_name"], state["source"]) == ("strange", "unknown")
