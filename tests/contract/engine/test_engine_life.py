"""An engine's process, its command line, its sleep under load, and what clients that leave do to it."""

import asyncio
import os
import signal
import subprocess
import sys

import aiohttp
import pytest
from engine_process import SGLANG, until

from aibrix_operator.sim.engine import tokens

FAST = {"boot_seconds": 0, "tokens_per_second": 500}
SLOW = {"boot_seconds": 0, "tokens_per_second": 20}


async def test_the_stand_in_becomes_the_engine_in_the_same_process_and_group(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    assert engine.command()[1:6] == ["-m", "aibrix_operator.sim.engine", "vllm", "--model", "m"]
    assert os.getpgid(engine.process.pid) == engine.process.pid
    engine.process.send_signal(signal.SIGTERM)
    assert await engine.exit_code() == 0


async def test_requests_in_flight_go_on_while_an_engine_takes_its_time_to_stop(engines, profiles):
    engine = await engines.up("a", environ=profiles(a={**SLOW, "stop_seconds": 60}))
    request = asyncio.create_task(engine.chat(max_tokens=40, ignore_eos=True))
    await until(lambda: engine.metric("vllm:num_requests_running"), "the request runs")
    engine.process.send_signal(signal.SIGTERM)
    assert (await request)[0] == 200
    assert engine.process.poll() is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(["--max-model-len", "many"], "argument --max-model-len", id="no number"),
        pytest.param(["--tensor-parallel-size="], "argument --tensor-parallel-size", id="empty number"),
        pytest.param(["--max-num-seqs", "0"], "argument --max-num-seqs", id="zero"),
    ],
)
async def test_a_wrong_command_line_exits_with_code_2(engines, flags, message):
    engine = engines.start("a", *flags)
    assert await engine.exit_code() == 2
    assert message in engine.log.read_text()


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 3}', '{"a": {"speed": 1}}', '{"a": {"boot_seconds": -1}}'])
async def test_a_profile_file_that_can_not_be_used_exits_with_code_2(engines, tmp_path, text):
    (tmp_path / "profiles.json").write_text(text)
    engine = engines.start("a", environ={"AIBRIX_SIM_PROFILES": str(tmp_path / "profiles.json")})
    assert await engine.exit_code() == 2
    assert "profiles.json" in engine.log.read_text()


async def test_a_port_that_is_taken_ends_the_boot(engines, profiles):
    first = await engines.up("a", environ=profiles(default=FAST))
    second = engines.start("b", "--port", str(first.port), environ=profiles(default=FAST))
    assert await second.exit_code() == 1
    assert "cannot listen" in second.log.read_text()


async def test_sleep_and_adapter_routes_exist_only_where_they_are_switched_on(engines, profiles):
    engine = await engines.up("a", environ={**profiles(a=FAST), "VLLM_SERVER_DEV_MODE": "0"})
    missing = (404, {"detail": "Not Found"})
    assert await engine.post("/sleep") == missing
    assert await engine.post("/wake_up") == missing
    assert await engine.get("/is_sleeping") == missing
    assert await engine.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "y"}) == missing


async def test_the_same_prompt_gets_the_same_answer_from_every_engine(engines, profiles):
    environ = profiles(default={**FAST, "tokens_per_second": 2000})
    first = await engines.up("a", environ=environ)
    second = await engines.up("a", environ=environ)
    answers = [
        (await engine.chat(text, max_tokens=None))[1]["choices"]
        for engine in (first, second, first)
        for text in ("hi", "ho")
    ]
    assert answers[0:2] == answers[2:4] == answers[4:6]
    assert answers[0] != answers[1]
    assert answers[0][0]["finish_reason"] == "stop"


async def test_a_client_that_leaves_takes_its_request_along(engines, profiles):
    engine = await engines.up("a", environ=profiles(a={**SLOW, "kv_bytes_per_token": "1Mi"}))
    for stream in (True, False):
        request = asyncio.create_task(engine.chat(max_tokens=1000, ignore_eos=True, stream=stream))
        await until(lambda: engine.metric("vllm:num_requests_running"), "the request runs")
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await until(lambda: engine.read_segment()[1] == 0, "its KV is given back")
        assert await engine.metric("vllm:num_requests_running") == 0
    assert await engine.metric("vllm:request_success_total") == 0


async def test_a_sleep_given_up_while_requests_run_is_undone_by_the_scheduling_tag(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=SLOW))
    busy = asyncio.create_task(engine.chat(max_tokens=1000, ignore_eos=True))
    await until(lambda: engine.metric("vllm:num_requests_running"), "the request runs")
    with pytest.raises(TimeoutError):
        async with engine.request("POST", "/sleep?level=0&mode=wait", timeout=aiohttp.ClientTimeout(total=1.0)):
            pytest.fail("level 0 answered while a request runs")
    late = asyncio.create_task(engine.chat(max_tokens=2, ignore_eos=True))
    await until(lambda: engine.metric("vllm:num_requests_waiting"), "a later request waits")
    assert await engine.get("/is_sleeping") == (200, {"is_sleeping": True})
    assert await engine.post("/wake_up?tags=scheduling") == (200, {"status": "awake", "tags": ["scheduling"]})
    assert (await late)[1]["usage"]["completion_tokens"] == 2
    assert await engine.metric("vllm:num_requests_running") == 1
    assert await engine.get("/is_sleeping") == (200, {"is_sleeping": False})
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)


async def test_a_request_to_a_sleeping_engine_is_answered_once_it_wakes(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    await engine.post("/sleep?level=2")
    request = asyncio.create_task(engine.chat())
    await until(lambda: engine.metric("vllm:num_requests_waiting"), "the request hangs")
    assert (await engine.get("/health"))[0] == (await engine.get("/v1/models"))[0] == 200
    await engine.post("/wake_up?tags=weights")
    assert await engine.get("/is_sleeping") == (200, {"is_sleeping": True})
    assert not request.done()
    await engine.post("/wake_up?tags=kv_cache")
    assert (await request)[0] == 200
    assert await engine.get("/is_sleeping") == (200, {"is_sleeping": False})


async def test_mode_keep_freezes_a_request_over_the_sleep(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=SLOW))
    request = asyncio.create_task(engine.chat("hi", max_tokens=40, ignore_eos=True))
    await until(lambda: engine.metric("vllm:generation_tokens_total"), "tokens come")
    await engine.post("/sleep?level=1&mode=keep")
    assert engine.read_segment()[1] == 0
    assert await engine.metric("vllm:num_requests_waiting") == 1
    await engine.post("/wake_up")
    (choice,) = (await request)[1]["choices"]
    undisturbed = tokens.answer("a", "user: hi\nassistant:", max_tokens=40, ignore_eos=True)
    assert choice["message"]["content"] == undisturbed.text(0, 40)


@pytest.mark.parametrize("path", ["/sleep?level=3", "/sleep?level=deep", "/sleep?mode=soon", "/wake_up?tags=coffee"])
async def test_a_sleep_parameter_without_meaning_is_refused(engines, profiles, path):
    engine = await engines.up("a", environ=profiles(a=FAST))
    assert (await engine.post(path))[0] == 400
    assert await engine.get("/is_sleeping") == (200, {"is_sleeping": False})


async def test_many_requests_at_once_are_all_answered_and_bounded_by_the_batch(engines, profiles):
    engine = await engines.up("a", "--max-num-seqs", "4", environ=profiles(a=FAST))
    answers = await asyncio.gather(*(engine.chat(f"number {n}", max_tokens=20) for n in range(40)))
    assert {status for status, _ in answers} == {200}
    assert await engine.metric("vllm:request_success_total") == 40
    assert await engine.metric("vllm:request_queue_time_seconds_sum") > 0


async def test_sglang_answers_chat_and_its_own_metrics_and_has_none_of_vllms_sleep(engines, profiles):
    engine = await engines.up("a", "--context-length", "512", module=SGLANG, environ=profiles(a=FAST))
    assert (await engine.chat())[0] == 200
    assert (await engine.get("/v1/models"))[1]["data"][0]["max_model_len"] == 512
    assert await engine.metric("sglang:num_requests_total", model_name="a") == 1
    assert (await engine.post("/sleep?level=1"))[0] == 404


def test_an_engine_starts_without_heavy_imports():
    heavy = ("aiohttp", "fastapi", "pydantic", "prometheus_client", "kubernetes", "kopf", "yaml")
    script = f"import sys, aibrix_operator.sim.engine.__main__; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "[]\n"
