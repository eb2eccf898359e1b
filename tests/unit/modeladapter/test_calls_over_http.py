"""What engines and sidecars are sent, and what their answers mean."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from aibrix_operator.modeladapter import engines
from aibrix_operator.modeladapter.engines import Access, HttpEngines, Source
from aibrix_operator.modeladapter.snapshot import ListedModel, Target, Verdict, Way


class Server:
    """Answers everything with ``status`` and ``body``."""

    def __init__(self):
        self.status, self.body, self.calls, self.hangs = 200, "{}", [], False

    async def answer(self, request):
        self.calls.append((request.path, await request.text(), request.headers.get("Authorization")))
        if self.hangs:
            await asyncio.sleep(60)
        return web.Response(status=self.status, text=self.body)


@pytest.fixture
async def server():
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    test_server = TestServer(app, host="127.0.0.1")
    await test_server.start_server()
    made.port = test_server.port
    yield made
    await test_server.close()


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield HttpEngines(session, "runtime-token")


def target(port, way=Way.DIRECT, engine=""):
    return Target("b-1", "u", "127.0.0.1", port, way, engine, port)


async def load(http, server, way=Way.DIRECT, **source):
    return await http.load(target(server.port, way), Access("k"), "sql", Source("hf://org/sql", **source))


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, "Success", Verdict.DONE),
        (201, "", Verdict.DONE),
        (400, "The lora adapter 'sql' has already been loaded.", Verdict.DONE),
        (409, "", Verdict.DONE),
        (400, '{"success":false,"error_message":"LoRA adapter sql is already loaded"}', Verdict.DONE),
        (400, "LoRA is not enabled", Verdict.REFUSED),
        (404, '{"error":{"message":"No adapter found for nope"}}', Verdict.REFUSED),
        (500, '{"error":"CUDA out of memory"}', Verdict.REFUSED),
        (502, "<html>", Verdict.UNKNOWN),
        (503, "", Verdict.UNKNOWN),
    ],
)
async def test_what_an_answer_to_a_load_means(http, server, status, body, verdict):
    server.status, server.body = status, body
    assert (await load(http, server)).verdict is verdict


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error":{"message":"No adapter"}}', "No adapter"),
        ('{"error":"out of memory"}', "out of memory"),
        ('{"detail":"x"}', "x"),
        ('{"success":false,"error_message":"no such folder"}', "no such folder"),
        ("plain\nwords", "plain words"),
        ("", "no reason given"),
        ("[1]", "[1]"),
    ],
)
async def test_the_words_of_a_refusal_are_kept(http, server, body, words):
    server.status, server.body = 500, body
    assert (await load(http, server)).message == f"failed to load LoRA adapter (status 500): {words}"


@pytest.mark.acceptance("MA-10")
@pytest.mark.acceptance("MA-30")
async def test_a_sidecar_gets_address_credentials_and_config(http, server):
    await load(http, server, Way.SIDECAR, credentials={"t": "secret"}, additional_config={"a": "b"})
    path, body, authorization = server.calls[0]
    assert path == "/v1/lora_adapter/load"
    assert body == (
        '{"lora_name":"sql","artifact_url":"hf://org/sql","credentials":{"t":"secret"},"additional_config":{"a":"b"}}'
    )
    assert authorization == "Bearer runtime-token"
    await load(http, server, credentials={"t": "secret"})
    assert server.calls[1] == ("/v1/load_lora_adapter", '{"lora_name":"sql","lora_path":"org/sql"}', "Bearer k")


async def test_a_refusal_that_repeats_a_credential_shows_none(http, server):
    server.status, server.body = 500, '{"error":"403 for very-secret"}'
    answer = await load(http, server, Way.SIDECAR, credentials={"t": "very-secret"})
    assert "very-secret" not in answer.message


async def test_unload_of_what_is_not_there_is_done(http, server):
    server.status = 404
    assert (await http.unload(target(server.port), Access(), "sql")).verdict is Verdict.DONE
    server.status, server.body = 400, '{"success":false,"error_message":"LoRA with name sql does not exist."}'
    sglang = target(server.port, engine="sglang")
    assert (await http.unload(sglang, Access(), "sql")).verdict is Verdict.DONE
    server.body = '{"success":false,"error_message":"LoRA is not enabled."}'
    assert (await http.unload(sglang, Access(), "sql")).verdict is Verdict.REFUSED
    server.status = 500
    assert (await http.unload(sglang, Access(), "sql")).verdict is Verdict.REFUSED
    assert [path for path, *_ in server.calls] == ["/v1/unload_lora_adapter", *["/unload_lora_adapter"] * 3]


async def test_a_list_tells_adapters_from_base_models(http, server):
    server.body = '{"data":[{"id":"m","parent":null},{"id":"a","parent":"m"},{"id":"x"}]}'
    assert await http.models(target(server.port), Access()) == {
        "m": ListedModel(is_base=True),
        "a": ListedModel(is_base=False),
        "x": ListedModel(is_base=False),
    }


@pytest.mark.parametrize(("status", "body"), [(500, "boom"), (200, "no json"), (200, "{}"), (200, '{"data":[3]}')])
async def test_no_list_is_told_in_words(http, server, status, body):
    server.status, server.body = status, body
    assert "cannot list models" in await http.models(target(server.port), Access())


async def test_metrics_are_asked_of_the_engine_also_where_a_sidecar_is_before_it(http, server):
    server.body = "vllm:prompt_tokens_total 3.0\n"
    behind = Target("b-1", "u", "127.0.0.1", 9, Way.SIDECAR, "", server.port)
    assert (await http.work(behind, Access("k"))).prompt_tokens == 3.0
    assert server.calls == [("/metrics", "", "Bearer k")]
    server.status, server.body = 404, "nothing here"
    assert await http.work(behind, Access()) == "cannot read metrics (status 404): nothing here"
    assert "cannot be reached" in await http.work(target(9), Access())


async def test_nobody_there_and_no_answer(http, server, monkeypatch):
    nobody = target(9)
    assert (await http.load(nobody, Access(), "sql", Source("/a"))).verdict is Verdict.NOT_SENT
    assert "cannot be reached" in await http.models(nobody, Access())
    monkeypatch.setattr(engines, "CALL_DEADLINE_S", 1.0)  # half of it is for the connection, which is to be made
    server.hangs = True
    answer = await load(http, server)
    assert (answer.verdict, "within 1 s" in answer.message) == (Verdict.UNKNOWN, True)
