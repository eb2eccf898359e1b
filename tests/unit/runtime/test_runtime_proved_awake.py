"""Who counts as asleep or awake: the engine's own word, its memory, and what an unproved wake leaves behind."""

import asyncio

import pytest
from fleet_bench import FakeNvml

from aibrix_operator.runtime.controls import MemoryNotBackError
from aibrix_operator.runtime.engines.door import EngineCallError
from aibrix_operator.runtime.nvml import GpuReading
from aibrix_operator.runtime_api.wire import EnginePhase, SleepRequest, WakeRequest

GIB = 1 << 30
SLEEP = SleepRequest(model_name="m", level=1, operation_id="s")
AWAKE_BYTES, ASLEEP_BYTES = 6 * GIB, GIB


def wake(number=1):
    return WakeRequest(model_name="m", operation_id=f"w{number}")


def holding(pid, held_bytes):
    return FakeNvml([GpuReading(held_bytes={pid: {"GPU-1": held_bytes}})])


async def ready(bench):
    (state,) = (await bench.observation.snapshot()).models
    return state.ready


async def put_to_sleep(bench):
    """A measured sleeper; its process' pid comes back."""
    pid = (await bench.start_and_serve()).process.pid
    bench.fleet.nvml = FakeNvml(
        [GpuReading(held_bytes={pid: {"GPU-1": held}}) for held in (AWAKE_BYTES, ASLEEP_BYTES, ASLEEP_BYTES)]
    )
    await bench.controls.sleep(SLEEP)
    assert bench.record.sleeping_footprint_bytes == ASLEEP_BYTES
    return pid


async def test_a_wake_ends_when_memory_is_back(bench):
    pid = await put_to_sleep(bench)
    bench.fleet.nvml = holding(pid, AWAKE_BYTES)
    assert (await bench.controls.wake(wake())).phase is EnginePhase.BOOTING
    await bench.tick()
    assert bench.record.phase is EnginePhase.ACTIVE


async def test_an_engine_that_calls_itself_awake_without_its_memory_stays_asleep(bench):
    pid = await put_to_sleep(bench)
    bench.kind.word = False
    with pytest.raises(MemoryNotBackError, match=f"holds no more than the {ASLEEP_BYTES} bytes of its sleep"):
        await bench.controls.wake(wake())
    for _ in range(2):
        assert (bench.record.phase, bench.record.sleeping_footprint_bytes) == (EnginePhase.SLEEPING, ASLEEP_BYTES)
        assert not await ready(bench)
        await bench.tick(after_s=6)
    bench.fleet.nvml = holding(pid, AWAKE_BYTES)
    await bench.tick(after_s=6)
    assert (bench.record.phase, bench.record.sleeping_footprint_bytes) == (EnginePhase.ACTIVE, None)


async def test_memory_that_cannot_be_attributed_is_said_and_does_not_hold_up_a_wake(bench, caplog):
    caplog.set_level("INFO")
    await put_to_sleep(bench)
    bench.fleet.nvml = holding(pid=1, held_bytes=AWAKE_BYTES)
    assert (await bench.controls.wake(wake())).applied
    assert "engine m is awake by its own word; its memory cannot be attributed" in caplog.text


async def test_a_sleep_without_a_footprint_is_woken_by_word_alone(bench):
    pid = (await bench.start_and_serve()).process.pid
    bench.fleet.nvml = holding(pid, AWAKE_BYTES)  # it freed nothing
    await bench.controls.sleep(SLEEP)
    assert bench.record.sleeping_footprint_bytes is None
    assert (await bench.controls.wake(wake())).applied


async def test_a_wake_that_is_not_proved_leaves_the_engine_asleep_and_not_ready(bench):
    await put_to_sleep(bench)
    bench.kind.word = True

    async def stay_asleep():
        raise EngineCallError("it still says that it is asleep")

    bench.kind.on_wake = stay_asleep
    with pytest.raises(EngineCallError):
        await bench.controls.wake(wake())
    await bench.tick(after_s=6)
    assert (bench.record.phase, await ready(bench)) == (EnginePhase.SLEEPING, False)


async def test_a_waking_that_failed_midway_is_gone_on_with_and_a_new_one_starts_afresh(bench):
    await put_to_sleep(bench)

    async def fail():
        raise EngineCallError("no")

    async def succeed():
        return None

    bench.kind.on_wake = fail
    for _ in range(2):
        with pytest.raises(EngineCallError):
            await bench.controls.wake(wake())
        bench.kind.wakings[-1].has_memory = True
    bench.kind.on_wake = succeed
    await bench.controls.wake(wake())
    await bench.tick()
    await bench.controls.sleep(SLEEP.model_copy(update={"operation_id": "s2"}))
    await bench.controls.wake(wake(2))
    first, second, third, fourth = bench.kind.wakings
    assert first is second is third
    assert not fourth.has_memory


async def test_an_engine_that_somebody_put_to_sleep_is_shown_asleep_within_seconds(bench):
    await bench.start_and_serve()
    bench.kind.word = True
    for _ in range(5):
        await bench.tick()
    assert (bench.record.phase, bench.record.sleeping_footprint_bytes) == (EnginePhase.SLEEPING, None)
    assert not await ready(bench)
    assert (await bench.controls.wake(wake())).applied


async def test_an_engine_that_somebody_woke_serves_again_within_seconds(bench):
    pid = await put_to_sleep(bench)
    bench.fleet.nvml = holding(pid, AWAKE_BYTES)
    bench.kind.word = False
    for _ in range(5):
        await bench.tick()
    assert (bench.record.phase, bench.record.sleeping_footprint_bytes) == (EnginePhase.ACTIVE, None)


async def test_a_booting_engine_that_says_it_sleeps_does_not_turn_active(bench):
    bench.kind.word = True
    await bench.start_and_serve()
    assert bench.record.phase is EnginePhase.SLEEPING


async def test_without_a_word_the_record_stands(bench):
    await bench.start_and_serve()
    for _ in range(6):
        await bench.tick()
    assert bench.record.phase is EnginePhase.ACTIVE
    await bench.controls.sleep(SLEEP)
    for _ in range(6):
        await bench.tick()
    assert bench.record.phase is EnginePhase.SLEEPING


@pytest.mark.parametrize(("stored", "word"), [(EnginePhase.SLEEPING, False), (EnginePhase.ACTIVE, True)])
async def test_the_next_sidecar_believes_the_engine_and_not_the_record(bench, stored, word):
    await bench.start_and_serve()
    if stored is EnginePhase.SLEEPING:
        await bench.controls.sleep(SLEEP)
    assert bench.record.phase is stored
    bench.kind.word = word
    bench.again()
    await bench.supervisor.adopt()
    assert bench.record.phase is (EnginePhase.SLEEPING if word else EnginePhase.ACTIVE)


async def test_a_settled_engine_is_asked_every_five_seconds(bench):
    await bench.start_and_serve()
    asked = []

    async def is_asleep(door):
        asked.append(bench.now)
        return False

    bench.kind.is_asleep = is_asleep
    for _ in range(11):
        await bench.tick()
    assert len(asked) == 2


async def test_a_slow_word_does_not_hold_up_a_snapshot(bench):
    await bench.start_and_serve()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def is_asleep(door):
        entered.set()
        await leave.wait()

    bench.kind.is_asleep = is_asleep
    ticking = asyncio.create_task(bench.tick(after_s=6))
    await entered.wait()
    assert await ready(bench)
    leave.set()
    await ticking


async def test_a_snapshot_says_which_engines_can_sleep(make_bench):
    for mode, expected in (("auto", True), ("on", True), ("off", False)):
        bench = make_bench(engine_sleep_mode=mode)
        await bench.start()
        (state,) = (await bench.observation.snapshot()).models
        assert state.can_sleep is expected
        bench.end()
        (bench.directory / "run" / "engines.json").unlink()
