"""Real engine processes under the supervisor: deaths, restarts, stops, and what a next sidecar takes over."""

import asyncio
import os
import signal
from datetime import timedelta
from types import SimpleNamespace

import pytest
from engine_records import make_record
from fleet_bench import lives, members

from aibrix_operator.runtime import supervisor
from aibrix_operator.runtime.controls import BudgetExhaustedError
from aibrix_operator.runtime.launcher import LaunchError
from aibrix_operator.runtime.lifecycle import Adoption
from aibrix_operator.runtime.records import EngineProcess
from aibrix_operator.runtime.registry import RegistryError
from aibrix_operator.runtime_api.wire import EnginePhase


async def test_an_engine_is_active_once_it_answers(bench):
    await bench.start()
    assert bench.record.phase is EnginePhase.BOOTING
    assert (await bench.start_and_serve()).phase is EnginePhase.ACTIVE


async def test_an_engine_that_answers_sick_keeps_booting(bench):
    assert (await bench.start_and_serve("sick")).phase is EnginePhase.BOOTING


@pytest.mark.parametrize("reading", ["snapshot", "models"])
async def test_an_engine_that_dies_just_after_its_answer_is_not_told_ready(bench, monkeypatch, reading):
    record = await bench.start_and_serve()
    door = bench.fleet.door(record)

    async def answers_and_dies():
        answer = await door.is_ready()
        os.kill(record.process.pid, signal.SIGKILL)
        await bench.until_dead(record.process.pid)
        return answer

    dying = SimpleNamespace(is_ready=answers_and_dies, metrics_page=door.metrics_page)
    monkeypatch.setattr(bench.fleet, "door", lambda _: dying)
    (state,) = (await getattr(bench.observation, reading)()).models
    assert not state.ready


async def test_a_killed_engine_is_started_again_when_its_time_has_come(bench):
    first = await bench.start_and_serve()
    os.kill(first.process.pid, signal.SIGKILL)
    await bench.until_dead(first.process.pid)
    await bench.tick()
    assert (bench.record.phase, bench.record.restart_count) == (EnginePhase.RESTARTING, 1)
    await bench.tick(after_s=1.9)
    assert bench.record.process is None
    await bench.tick(after_s=0.1)
    second = bench.record
    assert (second.phase, second.port, second.ipc_name) == (EnginePhase.BOOTING, first.port, first.ipc_name)
    assert second.process != first.process
    assert bench.fleet.counters.restart_attempts["m"] == 1


async def test_six_deaths_are_the_end_and_only_a_deactivate_helps(bench):
    await bench.start("dies")
    launches = [bench.record.process]
    for delay_s in (2, 4, 8, 16, 32):
        await bench.until_dead(launches[-1].pid)
        await bench.tick()
        assert bench.record.phase is EnginePhase.RESTARTING
        await bench.tick(after_s=delay_s)
        launches.append(bench.record.process)
    await bench.until_dead(launches[-1].pid)
    await bench.tick()
    assert len(set(launches)) == 6
    assert (bench.record.phase, bench.record.last_error) == (
        EnginePhase.FAILED,
        "engine exited; restart budget exhausted",
    )
    (state,) = (await bench.observation.snapshot()).models
    assert (state.phase, state.alive, state.ready, state.restart_count) == (EnginePhase.FAILED, False, False, 5)
    assert bench.fleet.counters.budgets_exhausted["m"] == 1
    with pytest.raises(BudgetExhaustedError, match="exhausted its local restart budget; deactivate it before"):
        await bench.start()
    await bench.stop()
    assert bench.record is None


@pytest.mark.parametrize("worker", ["worker", "deaf-worker"])
async def test_a_relaunch_waits_until_the_workers_of_the_dead_engine_are_gone(bench, worker):
    first = await bench.start_and_serve(worker)
    await bench.until(lambda: len(members(first.process)) == 2, "the worker runs")
    os.kill(first.process.pid, signal.SIGKILL)
    await bench.until_dead(first.process.pid)
    await bench.tick()
    assert bench.record.phase is EnginePhase.RESTARTING
    if worker == "deaf-worker":
        assert len(members(first.process)) == 1
        await bench.tick(after_s=60)  # due, and yet there is somebody left
        assert bench.record.process == first.process
    await bench.until(lambda: not members(first.process), "the worker is gone")
    await bench.tick(after_s=60)
    assert bench.record.phase is EnginePhase.BOOTING


async def test_a_stopped_engine_stays_listed_until_it_is_gone(bench):
    record = await bench.start_and_serve()
    await bench.stop()
    assert bench.record.phase is EnginePhase.STOPPING
    await bench.until_dead(record.process.pid)
    assert not (await bench.observation.snapshot()).models[0].alive
    await bench.tick()
    assert bench.record is None
    assert bench.settings.engine_registry_path.read_text() == '{"engines":[],"version":1}'


async def test_an_engine_that_ignores_sigterm_is_killed_after_its_grace(bench):
    record = await bench.start_and_serve("deaf", "deaf-worker")
    await bench.stop()
    await bench.tick(after_s=29)
    assert len(members(record.process)) == 2
    await bench.tick(after_s=1)
    await bench.until(lambda: not members(record.process), "the whole group is gone")
    await bench.tick()
    assert bench.record is None


async def test_a_stop_is_waited_for_by_the_workers_too(bench):
    record = await bench.start_and_serve("deaf-worker")
    await bench.until(lambda: len(members(record.process)) == 2, "the worker runs")
    await bench.stop()
    await bench.until_dead(record.process.pid)
    await bench.tick()
    assert bench.record.phase is EnginePhase.STOPPING
    await bench.tick(after_s=30)
    await bench.until(lambda: not members(record.process), "the worker is gone")
    await bench.tick()
    assert bench.record is None


async def test_the_next_sidecar_takes_the_engine_over(bench):
    first = await bench.start_and_serve()
    bench.again()
    await bench.supervisor.adopt()
    assert bench.record == first
    assert bench.fleet.counters.adoptions[Adoption.SUCCESS] == 1
    os.kill(first.process.pid, signal.SIGKILL)
    await bench.until_dead(first.process.pid)
    await bench.tick()
    assert bench.record.phase is EnginePhase.RESTARTING


async def test_the_next_sidecar_restarts_an_engine_that_died_meanwhile(bench):
    first = await bench.start_and_serve()
    os.kill(first.process.pid, signal.SIGKILL)
    await bench.until_dead(first.process.pid)
    bench.again()
    await bench.supervisor.adopt()
    assert bench.fleet.counters.adoptions[Adoption.RESTART_SCHEDULED] == 1
    await bench.tick(after_s=2)
    assert (bench.record.phase, bench.record.restart_count) == (EnginePhase.BOOTING, 1)


async def test_an_intent_without_a_process_is_started_by_the_next_sidecar(bench):
    bench.fleet.put(make_record(EnginePhase.BOOTING, process=None, last_transition=bench.now))
    await bench.fleet.save()
    bench.again()
    await bench.supervisor.adopt()
    await bench.tick(after_s=2)
    assert bench.record.process is not None


async def test_duplicates_and_broken_entries_are_counted(bench):
    registry = bench.fleet._registry
    registry.save([make_record(EnginePhase.FAILED), make_record(EnginePhase.FAILED)])
    await bench.supervisor.adopt()
    assert dict(bench.fleet.counters.adoptions) == {
        Adoption.INVALID: 0,
        Adoption.DUPLICATE: 1,
        Adoption.TERMINAL: 1,
    }


@pytest.mark.parametrize("phase", EnginePhase)
async def test_a_stored_pid_that_belongs_to_someone_else_is_never_signalled(bench, phase):
    stranger = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    try:
        bench.fleet._registry.save([make_record(phase, process=EngineProcess(stranger.pid, "1"), restart_count=9)])
        await bench.supervisor.adopt()
        for _ in range(3):
            await bench.tick(after_s=100)
        if bench.record is not None:
            await bench.stop()
        assert lives(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_registry_that_cannot_be_written_starts_nothing(make_bench, tmp_path):
    (tmp_path / "file").touch()
    bench = make_bench(engine_registry_path=tmp_path / "file" / "engines.json")
    with pytest.raises(RegistryError, match="cannot be written"):
        await bench.start()
    assert bench.record is None


async def test_an_engine_that_cannot_be_launched_leaves_no_intent(make_bench):
    bench = make_bench(engine_python="/nonexistent/python")
    with pytest.raises(LaunchError, match="/nonexistent/python"):
        await bench.start()
    assert bench.record is None
    assert bench.settings.engine_registry_path.read_text() == '{"engines":[],"version":1}'


async def test_a_relaunch_that_cannot_start_counts_as_a_death(make_bench):
    bench = make_bench(engine_python="/nonexistent/python")
    due = make_record(EnginePhase.RESTARTING, next_restart_at=bench.now, restart_count=1, process=None)
    bench.fleet.put(due)
    await bench.tick()
    assert (bench.record.phase, bench.record.restart_count) == (EnginePhase.RESTARTING, 2)
    assert bench.record.last_error.startswith("restart launch failed: cannot start /nonexistent/python")


async def test_a_lost_write_is_made_up_for_at_the_next_tick(bench, monkeypatch):
    record = await bench.start_and_serve()
    saves = []

    def fail(*_):
        saves.append(1)
        raise RegistryError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.fleet._registry, "save", fail)
        await bench.stop()
        assert bench.record.phase is EnginePhase.STOPPING
    await bench.until_dead(record.process.pid)
    await bench.tick()
    assert saves
    assert bench.settings.engine_registry_path.read_text() == '{"engines":[],"version":1}'


async def test_a_look_that_fails_does_not_end_supervision(bench, monkeypatch):
    looks, two_looks = [], asyncio.Event()

    async def tick():
        looks.append(1)
        if len(looks) == 2:
            two_looks.set()
        raise RuntimeError("a look went wrong")

    monkeypatch.setattr(supervisor, "TICK_S", 0)
    monkeypatch.setattr(bench.supervisor, "tick", tick)
    running = asyncio.create_task(bench.supervisor.run())
    await asyncio.wait_for(two_looks.wait(), 10)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_engine_that_was_found_stopping_is_killed_once_its_grace_is_over(bench):
    record = await bench.start_and_serve("deaf")
    await bench.stop()
    bench.now += timedelta(seconds=31)
    bench.again()
    await bench.supervisor.adopt()
    assert bench.fleet.counters.adoptions[Adoption.STOPPING] == 1
    await bench.until_dead(record.process.pid)
    await bench.tick()
    assert bench.record is None
