"""The change feed over real engine processes: what moves its version, what does not, and whom it wakes."""

import asyncio
import contextlib
import os
import signal
import struct
import time

import orjson
import pytest
from fleet_bench import answers

from aibrix_operator.runtime.changes import ChangeFeed
from aibrix_operator.runtime_api.wire import ChangesResponse, EnginePhase

LONG_S = 20.0


async def never():
    await asyncio.get_running_loop().create_future()


class Followed:
    """A bench with its feed and supervisor running."""

    def __init__(self, bench, feed):
        self.bench, self.feed = bench, feed

    async def poll(self, since, timeout_s=LONG_S):
        await self.feed.wait(since, timeout_s, never)
        return ChangesResponse.model_validate(orjson.loads(await self.feed.tell()))

    async def until(self, holds):
        """Follow the feed, and nothing but the feed, until a snapshot's engines are as wanted."""
        version, deadline = "", time.monotonic() + LONG_S
        while True:
            told = await self.poll(version)
            if holds(told.snapshot.models):
                return told
            assert time.monotonic() < deadline, told
            version = told.version


@pytest.fixture
async def followed(bench):
    feed = ChangeFeed(bench.fleet, bench.observation, bench.supervisor.look_soon)
    tasks = [asyncio.create_task(part.run()) for part in (feed, bench.supervisor)]
    yield Followed(bench, feed)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def is_in(phase):
    return lambda models: bool(models) and models[0].phase is phase


async def test_an_empty_version_is_answered_at_once(followed):
    told = await followed.poll("")
    assert told.version == followed.feed.version
    assert told.snapshot.models == ()


async def test_the_same_version_is_answered_when_its_time_is_over(followed):
    first = await followed.poll("")
    again = await followed.poll(first.version, 0.05)
    assert again.version == first.version
    assert again.snapshot.observed_at >= first.snapshot.observed_at


async def test_no_two_sidecars_give_one_version(bench, followed):
    other = ChangeFeed(bench.fleet, bench.observation, bench.supervisor.look_soon)
    told = await followed.poll("")
    await asyncio.wait_for(other.wait(told.version, LONG_S, never), LONG_S / 2)
    assert other.version != told.version


async def test_a_new_engine_is_told_and_then_that_it_is_ready(bench, followed):
    await bench.start()
    booting = await followed.until(bool)
    assert booting.snapshot.models[0].alive
    active = await followed.until(is_in(EnginePhase.ACTIVE))
    assert active.snapshot.models[0].ready


async def test_readiness_is_told_while_another_change_holds_the_lock(bench, followed):
    await bench.start()
    async with bench.fleet.operation_lock:
        told = await followed.until(lambda models: models and models[0].ready)
        assert told.snapshot.models[0].phase is EnginePhase.BOOTING
    await followed.until(is_in(EnginePhase.ACTIVE))


async def test_a_killed_engine_is_told_without_waiting_for_the_next_look(bench, followed):
    await bench.start()
    told = await followed.until(is_in(EnginePhase.ACTIVE))
    os.kill(bench.record.process.pid, signal.SIGKILL)
    dead = await followed.until(lambda models: not models[0].alive)
    assert not dead.snapshot.models[0].ready
    restarting = await followed.until(is_in(EnginePhase.RESTARTING))
    assert restarting.snapshot.models[0].restart_count == 1
    assert restarting.version not in (told.version, dead.version)


async def test_an_engine_of_the_last_sidecar_is_watched_too(bench):
    await bench.start_and_serve()
    bench.again()
    await bench.supervisor.adopt()
    feed = ChangeFeed(bench.fleet, bench.observation, bench.supervisor.look_soon)
    running = asyncio.create_task(feed.run())
    try:
        followed = Followed(bench, feed)
        await followed.poll("")
        os.kill(bench.record.process.pid, signal.SIGKILL)
        await followed.until(lambda models: not models[0].alive)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_death_that_the_kernel_will_not_tell_is_looked_for(bench, followed, monkeypatch):
    def refuse(*_):
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    await bench.start()
    await followed.until(is_in(EnginePhase.ACTIVE))
    os.kill(bench.record.process.pid, signal.SIGKILL)
    await followed.until(lambda models: not models[0].alive)


async def test_a_stopped_engine_is_told_gone(bench, followed):
    await bench.start("worker")
    await followed.until(is_in(EnginePhase.ACTIVE))
    await bench.stop()
    await followed.until(lambda models: models == ())


async def test_a_limit_that_changes_is_told_and_mapped_pages_are_not(bench, followed):
    await bench.start()
    segment = bench.settings.kv_segment_dir / bench.record.ipc_name
    segment.write_bytes(struct.pack("<qqq", 1_000, 10, 0))
    await followed.until(is_in(EnginePhase.ACTIVE))
    told = await followed.until(lambda models: models[0].kv_capacity_bytes == 1_000)
    segment.write_bytes(struct.pack("<qqq", 1_000, 500, 7))
    same = await followed.poll(told.version, 0.3)
    assert same.version == told.version
    assert same.snapshot.models[0].kv_used_bytes == 507
    segment.write_bytes(struct.pack("<qqq", 2_000, 500, 7))
    await followed.until(lambda models: models[0].kv_capacity_bytes == 2_000)


async def test_fifty_polls_share_one_snapshot(bench, followed, monkeypatch):
    snapshots = []
    snapshot = bench.observation.snapshot

    async def counted():
        snapshots.append(1)
        return await snapshot()

    told = await followed.poll("")
    monkeypatch.setattr(bench.observation, "snapshot", counted)
    polls = [asyncio.create_task(followed.poll(told.version)) for _ in range(50)]
    await asyncio.sleep(0)
    await bench.start()
    versions = {(await poll).version for poll in polls}
    assert len(versions) == 1
    assert told.version not in versions
    assert len(snapshots) == 1


async def test_a_slow_snapshot_holds_up_nobody_who_came_later(bench, followed, monkeypatch):
    held = asyncio.get_running_loop().create_future()
    snapshot = bench.observation.snapshot

    async def slow_once():
        monkeypatch.setattr(bench.observation, "snapshot", snapshot)
        await held
        return await snapshot()

    monkeypatch.setattr(bench.observation, "snapshot", slow_once)
    slow = asyncio.create_task(followed.poll(""))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await followed.poll("")).snapshot.models == ()
    assert not slow.done()
    held.set_result(None)
    await slow


class DeafDoor:
    async def is_ready(self):
        await never()


async def test_a_health_check_that_hangs_holds_up_no_other_news(bench, followed, monkeypatch):
    await bench.start()
    monkeypatch.setattr(bench.fleet, "door", lambda record: DeafDoor())
    before = followed.feed.version
    await followed.feed.wait(before, 0.3, never)
    asked = followed.feed.version
    os.kill(bench.record.process.pid, signal.SIGKILL)
    await asyncio.wait_for(followed.feed.wait(asked, LONG_S, never), LONG_S / 2)
    assert followed.feed.version != asked


async def test_a_caller_that_hangs_up_is_waited_for_no_longer(followed):
    told = await followed.poll("")
    gone = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(followed.feed.wait(told.version, LONG_S, lambda: gone))
    await asyncio.sleep(0)
    gone.set_result(None)
    await asyncio.wait_for(waiting, LONG_S / 2)
    assert followed.feed._waiting == 0


async def test_a_feed_that_closes_answers_all_who_wait_and_lets_nobody_wait(followed):
    told = await followed.poll("")
    waiting = asyncio.create_task(followed.poll(told.version))
    await asyncio.sleep(0)
    followed.feed.close()
    assert (await asyncio.wait_for(waiting, LONG_S / 2)).version == told.version
    await asyncio.wait_for(followed.feed.wait(told.version, LONG_S, never), LONG_S / 2)


async def test_nobody_is_probed_while_nobody_waits(bench, followed, monkeypatch):
    probed = []
    door = bench.fleet.door
    await bench.start("sick")
    await bench.until(lambda: answers(bench.record.port), "the engine listens")
    monkeypatch.setattr(bench.fleet, "door", lambda record: probed.append(record) or door(record))
    followed.feed.poke()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert followed.feed._probes == {}
    assert followed.feed._pace_s() is None
    told = await followed.poll("")
    with contextlib.suppress(TimeoutError):
        await followed.poll(told.version, 0.4)
    assert probed


async def test_a_look_that_fails_does_not_end_the_feed(bench, followed, monkeypatch, caplog):
    told = await followed.poll("")
    look = followed.feed._look

    def fail():
        monkeypatch.setattr(followed.feed, "_look", look)
        raise OSError("no more files")

    monkeypatch.setattr(followed.feed, "_look", fail)
    waiting = asyncio.create_task(followed.poll(told.version))
    await bench.until(lambda: "a look for changes failed" in caplog.text, "the look fails")
    await bench.start()
    assert (await waiting).version != told.version
