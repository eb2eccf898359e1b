"""Engines on simulated cards: what they hold, what stops them, and what kills them."""

import asyncio
import contextlib
import fcntl
import os
import signal

import aiohttp
from engine_process import until

from aibrix_operator.sim import card

GIB = 1024**3
MIB = 1024**2
# One token is one page of KV, so that every figure below is exact.
FAST = {
    "boot_seconds": 0,
    "tokens_per_second": 500,
    "footprint_bytes": "6Gi",
    "asleep_footprint_bytes": "300Mi",
    "kv_bytes_per_token": MIB,
    "kv_page_bytes": MIB,
}
SLOW = {**FAST, "tokens_per_second": 20}


def _held(cards, gpu):
    return [(h.pid, h.footprint_bytes, h.kv_bytes) for h in card.holdings(cards, gpu.uuid)]


async def test_an_engine_boots_with_its_footprint_and_the_whole_card_as_limit(engines, profiles, tmp_path):
    (gpu,) = card.create(tmp_path / "cards", ["24Gi"])
    engine = await engines.up("a", cards=tmp_path / "cards", environ=profiles(a=FAST))
    assert _held(tmp_path / "cards", gpu) == [(engine.process.pid, 6 * GIB, 0)]
    assert engine.read_segment() == (24 * GIB, 0, 0)


async def test_the_footprint_is_held_while_the_engine_still_boots(engines, profiles, tmp_path):
    (gpu,) = card.create(tmp_path / "cards", ["24Gi"])
    environ = profiles(a={**FAST, "boot_seconds": 60})
    engine = engines.start("a", cards=tmp_path / "cards", environ=environ)
    await until(lambda: _held(tmp_path / "cards", gpu) == [(engine.process.pid, 6 * GIB, 0)], "the footprint is mapped")
    assert not engine.segment.exists()
    assert not await engine.is_up()


async def test_running_tokens_map_kv_and_a_request_that_is_over_gives_it_back(engines, profiles, tmp_path):
    (gpu,) = card.create(tmp_path / "cards", ["24Gi"])
    engine = await engines.up("a", cards=tmp_path / "cards", environ=profiles(a=SLOW))
    request = asyncio.create_task(engine.chat(max_tokens=1000, ignore_eos=True))
    await until(lambda: engine.read_segment()[1] > 8 * MIB, "KV grows with the tokens")
    assert await engine.metric("vllm:num_requests_running", model_name="a") == 1
    assert await engine.metric("vllm:kv_cache_usage_perc") > 0
    _, used, prealloc = engine.read_segment()
    assert prealloc == 0
    assert _held(tmp_path / "cards", gpu)[0][2] >= used
    status, answer = await engine.chat(max_tokens=5, ignore_eos=True)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 5)
    await _leave(request)
    await until(lambda: engine.read_segment() == (24 * GIB, 0, 0), "both gave their KV back")
    assert _held(tmp_path / "cards", gpu) == [(engine.process.pid, 6 * GIB, 0)]


async def test_preallocated_pages_are_used_first_and_some_stay_mapped(engines, profiles, tmp_path):
    (gpu,) = card.create(tmp_path / "cards", ["24Gi"])
    environ = profiles(a={**SLOW, "prealloc_bytes": "64Mi"})
    engine = await engines.up("a", cards=tmp_path / "cards", environ=environ)
    assert engine.read_segment() == (24 * GIB, 0, 64 * MIB)
    request = asyncio.create_task(engine.chat(max_tokens=1000, ignore_eos=True))
    await until(lambda: 0 < engine.read_segment()[2] < 64 * MIB, "the request lives on the pages mapped ahead")
    _, used, prealloc = engine.read_segment()
    assert used + prealloc == 64 * MIB
    await _leave(request)
    await until(lambda: engine.read_segment() == (24 * GIB, 0, 64 * MIB), "some of the pages stay mapped")
    assert _held(tmp_path / "cards", gpu)[0][2] == 64 * MIB


async def test_a_request_over_the_limit_waits_until_the_limit_rises(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    engine.write_limit(2 * MIB)
    request = asyncio.create_task(engine.chat())
    await until(lambda: engine.metric("vllm:num_requests_waiting", model_name="a"), "the request waits")
    assert await engine.metric("vllm:num_requests_running") == 0
    assert engine.read_segment() == (2 * MIB, 0, 0)
    engine.write_limit(GIB)
    status, answer = await request
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")


async def test_a_request_that_outgrows_the_limit_is_preempted_and_loses_no_token(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    expected = (await engine.chat(max_tokens=20, ignore_eos=True))[1]["choices"]
    engine.write_limit(12 * MIB)  # the prompt fits, the answer does not
    request = asyncio.create_task(engine.chat(max_tokens=20, ignore_eos=True))
    await until(lambda: engine.metric("vllm:num_preemptions_total"), "the request is preempted")
    assert engine.read_segment() == (12 * MIB, 0, 0)
    assert await engine.metric("vllm:num_requests_waiting") == 1
    engine.write_limit(GIB)
    status, answer = await request
    assert (status, answer["choices"]) == (200, expected)


async def test_a_locked_segment_delays_requests_and_not_the_engine(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    with engine.segment.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        request = asyncio.create_task(engine.chat())
        await until(lambda: engine.metric("vllm:num_requests_waiting"), "the request waits")
        assert await engine.is_up()
    assert (await request)[0] == 200
    await until(lambda: engine.read_segment()[1] == 0, "the segment is told in the end")


async def test_an_engine_that_maps_more_than_is_free_dies_and_its_neighbour_lives(engines, profiles, tmp_path):
    (gpu,) = card.create(tmp_path / "cards", ["16Gi"])
    environ = profiles(default=FAST, greedy={"kv_bytes_per_token": GIB})
    calm = await engines.up("calm", cards=tmp_path / "cards", environ=environ)
    greedy = await engines.up("greedy", cards=tmp_path / "cards", environ=environ)
    async with greedy.request(
        "POST",
        "/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "ignore_eos": True, "stream": True},
    ) as answer:
        assert answer.status == 200
        # 12 of 16 GiB are held, the prompt alone needs 4 and one token more is one GiB too much.
        await _read_until_cut(answer)
    assert await greedy.exit_code() == 1
    assert "CUDA out of memory" in greedy.log.read_text()
    assert _held(tmp_path / "cards", gpu) == [(calm.process.pid, 6 * GIB, 0)]
    assert (await calm.chat())[0] == 200


async def test_a_footprint_that_does_not_fit_ends_the_boot(engines, profiles, tmp_path):
    card.create(tmp_path / "cards", ["8Gi"])
    first = await engines.up("a", cards=tmp_path / "cards", environ=profiles(default=FAST))
    second = engines.start("b", cards=tmp_path / "cards", environ=profiles(default=FAST))
    assert await second.exit_code() == 1
    assert "Tried to allocate 6.00 GiB" in second.log.read_text()
    assert "2.00 GiB is free" in second.log.read_text()
    assert await first.is_up()


async def test_sleep_leaves_the_asleep_footprint_and_wake_takes_it_back(engines, profiles, tmp_path):
    (gpu,) = card.create(tmp_path / "cards", ["24Gi"])
    environ = profiles(a={**FAST, "prealloc_bytes": "12Mi"})
    engine = await engines.up("a", "--enable-sleep-mode", cards=tmp_path / "cards", environ=environ)
    assert await engine.post("/sleep?level=1") == (200, {"status": "sleeping", "level": 1})
    assert _held(tmp_path / "cards", gpu) == [(engine.process.pid, 314_572_800, 0)]
    assert engine.read_segment() == (24 * GIB, 0, 0)
    assert await engine.post("/wake_up") == (200, {"status": "awake", "tags": None})
    assert _held(tmp_path / "cards", gpu) == [(engine.process.pid, 6 * GIB, 0)]
    assert (await engine.chat())[0] == 200


async def test_a_wake_that_does_not_fit_kills_the_engine(engines, profiles, tmp_path):
    (gpu,) = card.create(tmp_path / "cards", ["8Gi"])
    environ = profiles(default=FAST)
    sleeper = await engines.up("a", cards=tmp_path / "cards", environ=environ)
    await sleeper.post("/sleep?level=1")
    neighbour = await engines.up("b", cards=tmp_path / "cards", environ=environ)
    with contextlib.suppress(aiohttp.ClientConnectionError):  # it dies before it can answer
        await sleeper.post("/wake_up")
    assert await sleeper.exit_code() == 1
    assert "CUDA out of memory" in sleeper.log.read_text()
    assert _held(tmp_path / "cards", gpu) == [(neighbour.process.pid, 6 * GIB, 0)]


async def test_a_restarted_engine_rebuilds_its_segment_at_the_default_limit(engines, profiles, tmp_path):
    card.create(tmp_path / "cards", ["24Gi"])
    environ = profiles(a=SLOW)
    first = await engines.up("a", cards=tmp_path / "cards", environ=environ)
    first.write_limit(5 * GIB)
    request = asyncio.create_task(first.chat(max_tokens=100, ignore_eos=True))
    await until(lambda: first.read_segment()[1], "KV is mapped")
    os.kill(first.process.pid, signal.SIGKILL)
    await asyncio.gather(request, return_exceptions=True)
    assert await first.exit_code() == -signal.SIGKILL
    assert first.read_segment()[0] == 5 * GIB  # the file outlives the process, with its last figures
    assert first.read_segment()[1] > 0
    second = await engines.up("a", cards=tmp_path / "cards", environ=environ)
    assert second.read_segment() == (24 * GIB, 0, 0)


async def test_a_profile_can_name_the_pool(engines, profiles, tmp_path):
    card.create(tmp_path / "cards", ["24Gi"])
    environ = profiles(m={**FAST, "kv_pool_bytes": "80Gi"})  # by the artifact, as no entry has the served name
    engine = await engines.up("a", cards=tmp_path / "cards", environ=environ)
    assert engine.read_segment() == (80 * GIB, 0, 0)


async def test_a_tensor_parallel_engine_holds_the_same_on_each_of_its_cards(engines, profiles, tmp_path):
    first, second, third = card.create(tmp_path / "cards", ["24Gi"] * 3)
    flags = ("--tensor-parallel-size", "2")
    environ = {**profiles(a=SLOW), "NVIDIA_VISIBLE_DEVICES": f"{first.uuid},{third.uuid}"}
    engine = await engines.up("a", *flags, cards=tmp_path / "cards", environ=environ)
    request = asyncio.create_task(engine.chat(max_tokens=1000, ignore_eos=True))
    await until(lambda: _held(tmp_path / "cards", third)[0][2], "KV is mapped on the last card")
    assert _held(tmp_path / "cards", first)[0][2] > 0
    await _leave(request)
    empty = [(engine.process.pid, 6 * GIB, 0)]
    await until(lambda: _held(tmp_path / "cards", third) == empty, "the KV is given back")
    assert _held(tmp_path / "cards", first) == empty
    assert _held(tmp_path / "cards", second) == []


async def test_more_cards_than_are_visible_end_the_boot(engines, profiles, tmp_path):
    card.create(tmp_path / "cards", ["24Gi"])
    engine = engines.start("a", "-tp", "2", cards=tmp_path / "cards", environ=profiles(a=FAST))
    assert await engine.exit_code() == 1
    assert "larger than the number of visible GPUs 1" in engine.log.read_text()


async def test_without_kvcached_there_is_no_segment(engines, profiles):
    engine = await engines.up("a", environ={**profiles(a=FAST), "ENABLE_KVCACHED": "false"})
    assert (await engine.chat())[0] == 200
    assert not engine.segment.exists()


async def _leave(request):
    """Close the client's connection in the middle of its answer."""
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def _read_until_cut(answer):
    try:
        await answer.read()
    except aiohttp.ClientError:
        return  # the engine died in the middle of its answer
    raise AssertionError("the stream came to its end")
