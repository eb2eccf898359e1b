"""Sleep, wake and limits against a fake engine's dialogue: order, memory, footprints, and what never waits."""

import asyncio
import os
import socket

import pytest
from fleet_bench import FakeNvml

from aibrix_operator.runtime.controls import ModelUnknownError, NotSupportedError
from aibrix_operator.runtime.counters import Result
from aibrix_operator.runtime.engines.door import EngineCallError
from aibrix_operator.runtime.fleet import NoFreePortError
from aibrix_operator.runtime.nvml import GpuReading
from aibrix_operator.runtime.operations import Action, OperationMemory
from aibrix_operator.runtime_api.wire import (
    ActivateRequest,
    EnginePhase,
    KVLimitRequest,
    SleepRequest,
    WakeRequest,
)

GIB = 1 << 30
SLEEP = SleepRequest(model_name="m", level=1, operation_id="s")
WAKE = WakeRequest(model_name="m", operation_id="w")


def reading(pid, held_bytes):
    return GpuReading(held_bytes={pid: {"GPU-1": held_bytes}})


async def test_a_sleep_is_measured_with_the_readings_around_it(bench):
    pid = (await bench.start_and_serve()).process.pid
    bench.fleet.nvml = FakeNvml([reading(pid, 6 * GIB), reading(pid, GIB)])
    answer = await bench.controls.sleep(SLEEP)
    assert (answer.applied, answer.phase) == (True, EnginePhase.SLEEPING)
    assert bench.record.sleeping_footprint_bytes == GIB
    (state,) = (await bench.observation.snapshot()).models
    assert (state.sleeping_footprint_bytes, state.hbm_peak_bytes, state.ready) == (GIB, GIB, False)


async def test_a_sleep_that_nvml_cannot_attribute_has_no_footprint(bench):
    await bench.start_and_serve()
    await bench.controls.sleep(SLEEP)
    assert bench.record.sleeping_footprint_bytes is None


async def test_a_snapshot_waits_neither_for_a_sleep_nor_for_a_wake(bench):
    await bench.start_and_serve()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow():
        entered.set()
        await leave.wait()

    bench.kind.on_sleep = bench.kind.on_wake = slow
    for call, request in ((bench.controls.sleep, SLEEP), (bench.controls.wake, WAKE)):
        working = asyncio.create_task(call(request))
        await entered.wait()
        assert len((await bench.observation.snapshot()).models) == 1
        assert len((await bench.observation.models()).models) == 1
        assert not working.done()
        leave.set()
        assert (await working).applied
        entered.clear()
        leave.clear()


async def test_changes_wait_for_each_other(bench):
    await bench.start_and_serve()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow():
        entered.set()
        await leave.wait()

    bench.kind.on_sleep = slow
    sleeping = asyncio.create_task(bench.controls.sleep(SLEEP))
    await entered.wait()
    waking = asyncio.create_task(bench.controls.wake(WAKE))
    ticking = asyncio.create_task(bench.supervisor.tick())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waking.done()
    assert not ticking.done()
    leave.set()
    await asyncio.gather(sleeping, waking, ticking)
    assert (await waking).applied


async def test_a_failed_sleep_changes_nothing_and_leaves_its_id_unused(bench):
    await bench.start_and_serve()

    async def fail():
        raise EngineCallError("no")

    bench.kind.on_sleep = fail
    with pytest.raises(EngineCallError):
        await bench.controls.sleep(SLEEP)
    assert bench.record.phase is EnginePhase.ACTIVE
    assert bench.fleet.counters.lifecycle["m", Action.SLEEP, Result.FAILED] == 1
    bench.kind.on_sleep = _nothing
    assert (await bench.controls.sleep(SLEEP)).applied


async def _nothing():
    pass


async def test_a_failed_wake_forgets_the_footprint_and_leaves_it_asleep(bench):
    pid = (await bench.start_and_serve()).process.pid
    bench.fleet.nvml = FakeNvml([reading(pid, 6 * GIB), reading(pid, GIB)])
    await bench.controls.sleep(SLEEP)

    async def fail():
        raise EngineCallError("no")

    bench.kind.on_wake = fail
    with pytest.raises(EngineCallError):
        await bench.controls.wake(WAKE)
    assert (bench.record.phase, bench.record.sleeping_footprint_bytes) == (EnginePhase.SLEEPING, None)
    bench.kind.on_wake = _nothing
    assert (await bench.controls.wake(WAKE)).phase is EnginePhase.BOOTING


async def test_calls_for_unknown_models_count_nowhere(bench):
    for call in (
        bench.controls.sleep(SLEEP),
        bench.controls.wake(WAKE),
        bench.controls.set_kv_limit(KVLimitRequest(model_name="m", limit_bytes=1, operation_id="k")),
    ):
        with pytest.raises(ModelUnknownError, match="model 'm' is not active"):
            await call
    assert not bench.fleet.counters.lifecycle
    assert not bench.fleet.counters.kv_limits


async def test_an_engine_that_cannot_sleep_says_which_it_is(make_bench):
    bench = make_bench(engine_python="/bin/true")
    await bench.controls.activate(ActivateRequest(model_name="m", artifact_url="x", engine="other"))
    bench.started.append(bench.record.process)
    with pytest.raises(NotSupportedError, match="sleep is unsupported for engine 'other'"):
        await bench.controls.sleep(SLEEP)


async def test_gauges_and_memory_go_with_the_record_and_counters_stay(make_bench):
    bench = make_bench(engine_python="/bin/true")
    await bench.start()
    (bench.directory / bench.record.ipc_name).write_bytes(bytes(24))
    limit = KVLimitRequest(model_name="m", limit_bytes=5, operation_id="k")
    assert [(await bench.controls.set_kv_limit(limit)).applied for _ in range(2)] == [True, False]
    assert bench.fleet.counters.kv_limit_applied_bytes == {"m": 5}
    await bench.until_dead(bench.record.process.pid)
    await bench.stop()
    assert bench.record is None
    assert (bench.fleet.counters.kv_limit_applied_bytes, bench.fleet.counters.kv_limit_requested_bytes) == ({}, {})
    assert bench.fleet.counters.kv_limits == {("m", Result.APPLIED): 1, ("m", Result.SKIPPED): 1}
    await bench.start()
    assert (await bench.controls.set_kv_limit(limit)).applied


def test_the_last_128_ids_of_each_action_are_remembered():
    memory = OperationMemory()
    for number in range(129):
        memory.remember("m", Action.SLEEP, str(number))
    assert not memory.is_done("m", Action.SLEEP, "0")
    assert memory.is_done("m", Action.SLEEP, "1")
    assert not memory.is_done("m", Action.WAKE, "1")
    assert not memory.is_done("other", Action.SLEEP, "1")


async def test_the_lowest_free_port_is_picked_and_none_left_is_said(make_bench):
    first = 29_000 + os.getpid() % 1_000
    bench = make_bench(engine_python="/bin/true", engine_port_first=first, engine_port_last=first + 2)
    ports = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        for name in ("a", "b"):
            ports.append((await bench.controls.activate(ActivateRequest(model_name=name, artifact_url="x"))).port)
            bench.started.append(bench.fleet.records[name].process)
    assert ports == [first, first + 2]
    bench.fleet.settings = bench.fleet.settings.model_copy(update={"engine_port_first": first + 2})
    with pytest.raises(NoFreePortError, match="no free port available in agent range"):
        await bench.controls.activate(ActivateRequest(model_name="c", artifact_url="x"))
