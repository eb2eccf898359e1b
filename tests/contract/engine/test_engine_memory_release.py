"""SGLang's pause, release and resume in the stand-in: the same memory as vLLM's sleep, and the same ways to die."""

import asyncio
import contextlib

import aiohttp
import pytest
from engine_process import SGLANG, until

from aibrix_operator.sim import card

GIB = 1024**3
FAST = {"boot_seconds": 0, "tokens_per_second": 500, "footprint_bytes": "6Gi", "asleep_footprint_bytes": "300Mi"}
SLOW = {**FAST, "tokens_per_second": 20}
ABLE = ("--enable-memory-saver", "--enable-weights-cpu-backup")
PAUSED = (200, {"message": "Generation paused successfully.", "status": "ok"})
DONE = (200, None)


@pytest.fixture
def sglang(engines, profiles, tmp_path):
    """Starts one on a card of 24 GiB."""
    (gpu,) = card.create(tmp_path / "cards", ["24Gi"])

    async def start(profile=FAST, flags=ABLE):
        environ = profiles(a=profile)
        engine = await engines.up("a", *flags, module=SGLANG, cards=tmp_path / "cards", environ=environ)
        engine.held = lambda: [(h.footprint_bytes, h.kv_bytes) for h in card.holdings(tmp_path / "cards", gpu.uuid)]
        return engine

    return start


async def pause(engine):
    return await engine.post("/pause_generation", {"mode": "in_place"})


async def dies(engine, path, word):
    with contextlib.suppress(aiohttp.ClientConnectionError):  # it is gone before it can answer
        await engine.post(path, {})
    assert await engine.exit_code() == 1
    assert word in engine.log.read_text()


async def serving(engine, **more):
    request = asyncio.create_task(engine.chat(max_tokens=40, ignore_eos=True, **more))
    await until(lambda: engine.metric("sglang:num_running_reqs"), "the request runs")
    return request


async def test_release_leaves_the_asleep_footprint_and_resume_takes_it_back(sglang):
    engine = await sglang({**FAST, "prealloc_bytes": "12Mi"})
    assert await pause(engine) == PAUSED
    assert (await engine.post("/flush_cache"))[0] == 200
    assert await engine.post("/release_memory_occupation", {}) == DONE
    assert engine.held() == [(314_572_800, 0)]
    assert engine.read_segment() == (24 * GIB, 0, 0)
    request = asyncio.create_task(engine.chat())
    assert (await engine.get("/health"))[0] == 200  # as where SGLang's own generation is switched off
    assert await engine.post("/resume_memory_occupation", {}) == DONE
    assert engine.held() == [(6 * GIB, 0)]
    assert not request.done()
    assert (await engine.post("/continue_generation", {}))[0] == 200
    assert (await request)[0] == 200
    assert (await engine.get("/health_generate"))[0] == 200


async def test_a_pause_in_place_freezes_a_request_and_loses_no_token(sglang):
    engine = await sglang(SLOW)
    request = await serving(engine)
    await pause(engine)
    assert (await engine.post("/flush_cache"))[0] == 400
    await engine.post("/continue_generation", {})
    assert (await request)[1]["usage"]["completion_tokens"] == 40


async def test_a_pause_that_names_no_mode_aborts(sglang):
    engine = await sglang(SLOW)
    request = await serving(engine)
    assert await engine.post("/pause_generation", {}) == PAUSED
    assert (await request)[1]["usage"]["completion_tokens"] < 40


async def test_the_flush_says_whether_a_request_runs(sglang):
    engine = await sglang(SLOW)
    assert (await engine.post("/flush_cache"))[0] == 200
    request = await serving(engine)
    assert (await engine.post("/flush_cache"))[0] == 400
    assert (await request)[0] == 200
    assert (await engine.post("/flush_cache"))[0] == 200


async def test_the_generating_check_waits_for_the_pause_to_end(sglang):
    engine = await sglang()
    await pause(engine)
    check = asyncio.create_task(engine.get("/health_generate"))
    assert (await engine.get("/health"))[0] == 200
    assert not check.done()
    await engine.post("/continue_generation", {})
    assert (await check)[0] == 200


async def test_a_release_while_a_request_runs_ends_the_engine(sglang):
    engine = await sglang(SLOW)
    request = await serving(engine)
    await dies(engine, "/release_memory_occupation", "should be called only when server is idle")
    await asyncio.gather(request, return_exceptions=True)


async def test_a_second_release_ends_the_engine(sglang):
    engine = await sglang()
    await engine.post("/release_memory_occupation", {})
    await dies(engine, "/release_memory_occupation", "Cannot pause allocation")


async def test_a_resume_of_what_is_awake_ends_the_engine(sglang):
    await dies(await sglang(), "/resume_memory_occupation", "KeyError")


async def test_generating_on_released_memory_ends_the_engine(sglang):
    engine = await sglang()
    await engine.post("/release_memory_occupation", {})
    await dies(engine, "/continue_generation", "illegal memory access")


async def test_a_resume_that_does_not_fit_ends_the_engine(sglang, tmp_path):
    engine = await sglang()
    await engine.post("/release_memory_occupation", {})
    (gpu,) = card.visible_cards(tmp_path / "cards", None)
    card.hold(tmp_path / "cards", gpu.uuid, footprint_bytes=20 * GIB)
    try:
        await dies(engine, "/resume_memory_occupation", "CUDA out of memory")
    finally:
        card.release(tmp_path / "cards", gpu.uuid)


async def test_without_the_memory_saver_a_release_frees_nothing(sglang):
    engine = await sglang(flags=())
    info = (await engine.get("/server_info"))[1]
    assert (info["enable_memory_saver"], info["enable_weights_cpu_backup"]) == (False, False)
    assert await engine.post("/release_memory_occupation", {}) == DONE
    assert engine.held() == [(6 * GIB, 0)]


@pytest.mark.parametrize(
    "path", ["/pause_generation", "/continue_generation", "/release_memory_occupation", "/resume_memory_occupation"]
)
async def test_each_call_wants_a_body(sglang, path):
    engine = await sglang()
    assert (await engine.post(path))[0] == 400
    assert (await engine.get("/health"))[0] == 200
