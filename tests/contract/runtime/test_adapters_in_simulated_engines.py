"""The operator's calls about adapters against the simulated engines, straight and through our sidecar.

vLLM and SGLang differ in paths, in words and in how a request names an adapter; nobody above may notice the first two.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import aiohttp
import pytest
from sidecar_process import Sidecar, until

from aibrix_operator.modeladapter.engines import Access, HttpEngines, Source
from aibrix_operator.modeladapter.snapshot import ListedModel, Target, Verdict, Way
from aibrix_operator.sandbox.control_plane import free_port

BASE = ListedModel(is_base=True)
ADAPTER = ListedModel(is_base=False)


@dataclass
class Simulated:
    """One simulated engine as a process, where ``Sidecar`` expects the engine beside it."""

    kind: str
    process: subprocess.Popen
    port: int

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.process.kill()
        self.process.wait()


def simulated(kind, folder, *flags):
    port, log = free_port(), folder / "engine.log"
    profiles = folder / "profiles.json"
    profiles.write_text(json.dumps({"default": {"boot_seconds": 0, "tokens_per_second": 500}}))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIBRIX_", "KVCACHED_"))}
    settings = {"AIBRIX_SIM_PROFILES": str(profiles), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    where = ["--model" if kind == "vllm" else "--model-path", "base", "--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, "-m", "aibrix_operator.sim.engine", kind, *where, *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=kept | settings, cwd=folder, stdout=output, stderr=output)

    def is_up():
        assert process.poll() is None, log.read_text()
        return "serving base" in log.read_text()

    until(is_up, "the simulated engine serves")
    return Simulated(kind, process, port)


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def engine(request, tmp_path_factory):
    """With adapters switched on."""
    engine = simulated(request.param, tmp_path_factory.mktemp(request.param), "--enable-lora")
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def beside(engine, tmp_path_factory):
    """Our sidecar before it."""
    sidecar = Sidecar("ours", tmp_path_factory.mktemp("sidecar"))
    sidecar.engine.stop()
    sidecar.engine = engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFERENCE_ENGINE", engine.kind)
        sidecar.start()
    yield sidecar
    sidecar.end()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def http(session):
    return HttpEngines(session)


@pytest.fixture
def adapter(tmp_path):
    """A folder with an adapter."""
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    return str(tmp_path)


@pytest.fixture(params=Way)
def target(request, engine):
    """The engine, called one way or the other."""
    port = engine.port
    if request.param is Way.SIDECAR:
        port = request.getfixturevalue("beside").port
    return Target("b-1", "u", "127.0.0.1", port, request.param, engine.kind, engine.port)


async def test_an_adapter_is_loaded_listed_and_unloaded_each_as_often_as_one_likes(http, target, adapter):
    for _ in range(2):
        answer = await http.load(target, Access(), "sql", Source(adapter))
        assert answer.verdict is Verdict.DONE, answer
        assert await http.models(target, Access()) == {"base": BASE, "sql": ADAPTER}
    for _ in range(2):
        answer = await http.unload(target, Access(), "sql")
        assert answer.verdict is Verdict.DONE, answer
        assert await http.models(target, Access()) == {"base": BASE}


async def test_an_adapter_that_is_not_there_is_refused_in_the_engines_words(http, target, tmp_path):
    answer = await http.load(target, Access(), "sql", Source(str(tmp_path / "nothing")))
    assert answer.verdict is Verdict.REFUSED
    assert str(tmp_path / "nothing") in answer.message
    assert await http.models(target, Access()) == {"base": BASE}


async def test_metrics_are_read_behind_either(http, target):
    work = await http.work(target, Access())
    assert None not in (work.requests, work.busy_s, work.prompt_tokens, work.generated_tokens), work


async def test_a_request_names_an_adapter_as_its_engine_wants_it(http, session, engine, adapter):
    direct = Target("b-1", "u", "127.0.0.1", engine.port, Way.DIRECT, engine.kind, engine.port)
    await http.load(direct, Access(), "sql", Source(adapter))

    async def answers(name, **more):
        body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4} | more
        async with session.post(f"{engine.url}/v1/chat/completions", json=body) as response:
            return (await response.json()).get("model") or response.status

    named = {name: await answers(name) for name in ("base", "sql", "base:sql", "base:none", "none")}
    told_apart = await answers("sql", lora_path="sql")
    await http.unload(direct, Access(), "sql")
    assert (
        named
        == {
            "vllm": {"base": "base", "sql": "sql", "base:sql": 404, "base:none": 404, "none": 404},
            "sglang": {"base": "base", "sql": "base", "base:sql": "sql", "base:none": 400, "none": 404},
        }[engine.kind]
    )
    assert told_apart == "sql"  # what works with both, and is routed by the adapter's name
    assert await answers("sql") == 404


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_an_engine_without_adapters_says_so(http, kind, adapter, tmp_path):
    engine = simulated(kind, tmp_path)
    try:
        direct = Target("b-1", "u", "127.0.0.1", engine.port, Way.DIRECT, kind, engine.port)
        answer = await http.load(direct, Access(), "sql", Source(adapter))
        assert (answer.verdict, "LoRA is not enabled" in answer.message) == (Verdict.REFUSED, True)
    finally:
        engine.stop()
