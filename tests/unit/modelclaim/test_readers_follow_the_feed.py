"""How a reader hears of a runtime, in virtual time: through the change feed where there is one, else round by round."""

import asyncio
import functools

import pytest

from aibrix_operator.modelclaim.draft import ROUND_S
from aibrix_operator.modelclaim.readers import BREAKS_TO_GIVE_UP, FEED_AGAIN_S, REST_S, Reader
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import base_url
from aibrix_operator.runtime_api.outcome import Done, NotSent, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim import loop
from aibrix_operator.sim.runtimes import SimulatedRuntimes
from aibrix_operator.sim.sidecar import SimulatedRuntime

IP = "10.0.0.1"
BASE = base_url(IP)
GIB = 1 << 30
SOON_S = REST_S + 0.01
REQUEST = wire.ActivateRequest(model_name="m", artifact_url="hf://org/m")


class Watched:
    """A simulated runtime, its reader, and when the reader said that something changed."""

    def __init__(self):
        self.runtimes = Counting()
        self.runtime = self.runtimes.by_ip[IP] = SimulatedRuntime((24 * GIB,))
        self.changes = []
        self.reader = Reader(IP, self.runtimes, lambda: self.changes.append(now_s()))

    @property
    def engine(self):
        return self.reader.reading.snapshot.models[0]

    def heard_since(self, moment_s):
        return [change for change in self.changes if change > moment_s]


class Counting(SimulatedRuntimes):
    """Counts the two calls, and breaks polls off when told to."""

    def __init__(self):
        super().__init__()
        self.read_s, self.polled_s, self.breaks = [], [], False

    async def snapshot(self, base):
        self.read_s.append(now_s())
        return await super().snapshot(base)

    async def changes(self, base, since, timeout_s):
        self.polled_s.append(now_s())
        if self.breaks and since:
            await asyncio.sleep(0.5)
            return Unknown("the connection broke")
        return await super().changes(base, since, timeout_s)


def now_s():
    return asyncio.get_running_loop().time()


def in_virtual_time(story):
    @functools.wraps(story)
    def test(**arguments):
        async def play():
            watched = Watched()
            watched.reader.start()
            await asyncio.sleep(SOON_S)
            try:
                await story(watched, **arguments)
            finally:
                watched.reader.stop()

        loop.run(play())

    del test.__wrapped__
    return test


@in_virtual_time
async def test_the_first_reading_comes_at_once(watched):
    assert watched.reader.reading.snapshot is not None
    assert len(watched.changes) == 1


@in_virtual_time
async def test_a_boot_is_heard_of_as_it_ends(watched):
    watched.runtime.boot_s = 3.456
    watched.runtime.activate(REQUEST)
    await asyncio.sleep(SOON_S)
    assert watched.engine.phase is EnginePhase.BOOTING
    await asyncio.sleep(3.456)
    assert watched.engine.ready
    assert watched.heard_since(3.456) == [pytest.approx(3.456 + SOON_S)]


@pytest.mark.parametrize(
    ("happens", "phase"),
    [
        pytest.param(lambda runtime: runtime.sleep("m", GIB), EnginePhase.SLEEPING, id="asleep"),
        pytest.param(lambda runtime: runtime.crash("m", 2.0), EnginePhase.RESTARTING, id="dead"),
        pytest.param(lambda runtime: runtime.fail("m"), EnginePhase.FAILED, id="dead-for-good"),
    ],
)
def test_what_happens_to_an_engine_is_heard_of_at_once(happens, phase):
    @in_virtual_time
    async def story(watched):
        watched.runtime.seat(REQUEST, 4 * GIB)
        await asyncio.sleep(ROUND_S / 2)
        happened_s = now_s()
        happens(watched.runtime)
        await asyncio.sleep(SOON_S)
        assert watched.engine.phase is phase
        assert len(watched.heard_since(happened_s - 1e-6)) == 1

    story()


@in_virtual_time
async def test_an_engine_that_exits_is_heard_of_at_once(watched):
    watched.runtime.seat(REQUEST, 4 * GIB)
    watched.runtime.stop_s = 1.7
    await asyncio.sleep(2)
    watched.runtime.deactivate("m")
    await asyncio.sleep(SOON_S)
    assert watched.engine.phase is EnginePhase.STOPPING
    await asyncio.sleep(1.7)
    assert watched.reader.reading.snapshot.models == ()


@in_virtual_time
async def test_load_is_read_once_a_round_and_moves_no_feed(watched):
    engine = watched.runtime.seat(REQUEST, 4 * GIB)
    await asyncio.sleep(2)
    engine.running, engine.mapped_bytes = 7, GIB
    await asyncio.sleep(2)
    assert watched.engine.requests_running == 0
    await asyncio.sleep(ROUND_S)
    assert (watched.engine.requests_running, watched.engine.kv_used_bytes) == (7, GIB)


@in_virtual_time
async def test_a_quiet_runtime_costs_one_call_a_round_and_says_nothing(watched):
    await asyncio.sleep(3 * ROUND_S)
    calls, said = len(watched.runtimes.polled_s), len(watched.changes)
    await asyncio.sleep(10 * ROUND_S)
    assert len(watched.runtimes.polled_s) - calls == 10
    assert watched.runtimes.read_s == []
    assert len(watched.changes) == said


@in_virtual_time
async def test_a_reading_that_is_asked_for_comes_in_time_though_nothing_changes(watched):
    engine = watched.runtime.seat(REQUEST, 4 * GIB)
    await asyncio.sleep(2)
    engine.running = 3
    watched.reader.look_again(1.5)
    await asyncio.sleep(1.4)
    assert watched.engine.requests_running == 0
    await asyncio.sleep(0.11)
    assert watched.engine.requests_running == 3


@in_virtual_time
async def test_a_change_does_not_take_the_place_of_a_reading_that_was_asked_for(watched):
    engine = watched.runtime.seat(REQUEST, 4 * GIB)
    await asyncio.sleep(2)
    watched.reader.look_again(2.0)
    await asyncio.sleep(1)
    watched.runtime.sleep("m")
    watched.runtime.wake("m")
    await asyncio.sleep(SOON_S)
    engine.running = 3
    await asyncio.sleep(1)
    assert watched.engine.requests_running == 3


@in_virtual_time
async def test_sequence_numbers_grow_with_every_reading(watched):
    seen = [watched.reader.reading.sequence]
    for _ in range(3):
        watched.runtime.activate(REQUEST)
        await asyncio.sleep(SOON_S)
        seen.append(watched.reader.reading.sequence)
        watched.runtime.deactivate("m")
        await asyncio.sleep(SOON_S)
        seen.append(watched.reader.reading.sequence)
    assert seen == sorted(set(seen))


@in_virtual_time
async def test_after_a_write_the_open_poll_is_cut_and_the_runtime_read_at_once(watched):
    engine = watched.runtime.seat(REQUEST, 4 * GIB)
    await asyncio.sleep(3)
    before = watched.reader.reading.sequence
    engine.running = 5
    watched.reader.discard()
    assert watched.reader.reading.is_pending
    await asyncio.sleep(0.001)
    assert watched.engine.requests_running == 5
    assert watched.reader.reading.sequence == before + 1
    assert watched.heard_since(3) == [pytest.approx(3 + SOON_S)]


@in_virtual_time
async def test_an_answer_that_was_begun_before_a_write_counts_for_nothing(watched):
    watched.runtime.seat(REQUEST, 4 * GIB)
    answered = asyncio.get_running_loop().create_future()

    async def slow():
        watched.runtime.before_snapshot = None
        await answered

    await asyncio.sleep(2)
    watched.runtime.before_snapshot = slow
    watched.reader.look_again(0.0)
    await asyncio.sleep(0.5)
    watched.reader.discard()
    answered.set_result(None)
    sequence = watched.reader.reading.sequence
    await asyncio.sleep(0.001)
    assert watched.reader.reading.sequence == sequence + 1


@in_virtual_time
async def test_a_poll_that_answers_as_it_is_discarded_counts_for_nothing(watched):
    watched.runtime.seat(REQUEST, 4 * GIB)
    await asyncio.sleep(2)
    sequence, reads = watched.reader.reading.sequence, len(watched.runtimes.polled_s)
    watched.runtime.sleep("m")
    watched.reader.discard()
    await asyncio.sleep(0.001)
    assert watched.reader.reading.sequence == sequence + 1
    assert len(watched.runtimes.polled_s) == reads + 1


@in_virtual_time
async def test_a_restarted_sidecar_is_followed_again_at_once(watched):
    watched.runtime.seat(REQUEST, 4 * GIB)
    await asyncio.sleep(2)
    watched.runtime.restart_sidecar()
    await asyncio.sleep(SOON_S)
    assert watched.reader.reading.snapshot is not None
    watched.runtime.sleep("m")
    await asyncio.sleep(SOON_S)
    assert watched.engine.phase is EnginePhase.SLEEPING


@in_virtual_time
async def test_a_sidecar_that_is_away_for_a_second_is_read_as_soon_as_it_is_back(watched):
    watched.runtime.seat(REQUEST, 4 * GIB)
    await asyncio.sleep(2)
    del watched.runtimes.by_ip[IP]
    watched.runtime.restart_sidecar()
    await asyncio.sleep(0.01)
    assert "cannot connect" in watched.reader.reading.error
    watched.runtimes.by_ip[IP] = watched.runtime
    await asyncio.sleep(1)
    assert watched.reader.reading.snapshot is not None
    watched.runtime.sleep("m")
    await asyncio.sleep(SOON_S)
    assert watched.engine.phase is EnginePhase.SLEEPING


@in_virtual_time
async def test_a_sidecar_that_stays_away_is_asked_ever_more_rarely(watched):
    await asyncio.sleep(2)
    del watched.runtimes.by_ip[IP]
    watched.runtime.restart_sidecar()
    calls = len(watched.runtimes.polled_s)
    await asyncio.sleep(60)
    assert len(watched.runtimes.polled_s) - calls == 9  # at once, after 1, 2, 4 and 8 s, then once a round
    assert len(watched.heard_since(2)) == 1


@in_virtual_time
async def test_a_sidecar_left_alone_is_told_as_such(watched):
    async def left_alone():
        return NotSent("it did not answer in time recently; not calling it again yet", left_alone=True)

    watched.runtime.before_snapshot = left_alone
    await asyncio.sleep(ROUND_S)
    assert watched.reader.reading.is_left_alone
    watched.runtime.before_snapshot = None
    await asyncio.sleep(ROUND_S)
    assert watched.reader.reading.snapshot is not None


@in_virtual_time
async def test_a_poll_that_outlives_its_time_is_a_reading_that_failed(watched):
    async def silent():
        await asyncio.sleep(10)
        return Unknown("it did not answer within 20 s")

    await asyncio.sleep(1)
    watched.runtime.before_snapshot = silent
    await asyncio.sleep(2 * ROUND_S)
    assert watched.reader.reading.error == "it did not answer within 20 s"


@in_virtual_time
async def test_a_sidecar_without_a_feed_is_read_as_before(watched):
    watched.runtime.has_feed = False
    watched.runtime.restart_sidecar()
    await asyncio.sleep(SOON_S)
    engine = watched.runtime.seat(REQUEST, 4 * GIB)
    reads, asked = len(watched.runtimes.read_s), len(watched.runtimes.polled_s)
    await asyncio.sleep(ROUND_S)
    assert watched.engine.model_name == "m"
    engine.running = 2
    watched.reader.look_again(1.0)
    await asyncio.sleep(1.001)
    assert watched.engine.requests_running == 2
    await asyncio.sleep(4 * ROUND_S)
    assert len(watched.runtimes.read_s) - reads == 6
    assert len(watched.runtimes.polled_s) == asked


@in_virtual_time
async def test_a_sidecar_without_a_feed_is_asked_for_one_after_a_failure_and_now_and_then(watched):
    watched.runtime.has_feed = False
    watched.runtime.restart_sidecar()
    await asyncio.sleep(SOON_S)
    watched.runtime.has_feed = True
    await asyncio.sleep(FEED_AGAIN_S + ROUND_S)
    watched.runtime.activate(REQUEST)
    await asyncio.sleep(SOON_S)
    assert watched.engine.phase is EnginePhase.BOOTING

    watched.runtime.has_feed = False
    watched.runtime.restart_sidecar()
    await asyncio.sleep(SOON_S)
    del watched.runtimes.by_ip[IP]
    await asyncio.sleep(ROUND_S)
    assert watched.reader.reading.error
    watched.runtime.has_feed = True
    watched.runtimes.by_ip[IP] = watched.runtime
    await asyncio.sleep(ROUND_S)
    watched.runtime.deactivate("m")
    await asyncio.sleep(SOON_S)
    assert watched.reader.reading.snapshot.models == ()


@in_virtual_time
async def test_a_cut_poll_is_no_failed_reading(watched):
    await asyncio.sleep(1)
    watched.runtimes.breaks = True
    watched.reader.look_again(0.0)
    await asyncio.sleep(2)
    assert watched.reader.reading.error == ""


@in_virtual_time
async def test_after_a_cut_poll_nothing_is_known_until_the_runtime_answers_and_then_a_pass_looks(watched):
    watched.runtime.activate(REQUEST)
    await asyncio.sleep(SOON_S)
    said = len(watched.changes)

    async def slow():
        await asyncio.sleep(3.0)

    watched.runtime.before_snapshot = slow
    watched.runtime.restart_sidecar()
    await asyncio.sleep(2.0)
    assert (watched.reader.reading.snapshot, watched.reader.reading.error) == (None, "")
    assert len(watched.changes) == said
    await asyncio.sleep(3.0)
    assert watched.engine.model_name == "m"
    assert len(watched.changes) == said + 1


@in_virtual_time
async def test_a_path_on_which_every_poll_breaks_is_read_round_by_round(watched):
    watched.runtimes.breaks = True
    await asyncio.sleep(ROUND_S + BREAKS_TO_GIVE_UP)
    polls, reads = len(watched.runtimes.polled_s), len(watched.runtimes.read_s)
    await asyncio.sleep(10 * ROUND_S)
    assert len(watched.runtimes.polled_s) == polls
    assert len(watched.runtimes.read_s) - reads == 10
    assert watched.reader.reading.snapshot is not None


@in_virtual_time
async def test_a_feed_that_always_answers_at_once_is_not_asked_without_rest(watched):
    versions = iter(range(10**6))

    async def restless(base, since, timeout_s):
        watched.runtimes.polled_s.append(now_s())
        told = wire.ChangesResponse(version=f"v{next(versions)}", snapshot=watched.runtime.snapshot())
        return Done(told)

    watched.runtimes.changes = restless
    watched.reader.look_again(0.0)
    before = len(watched.runtimes.polled_s)
    await asyncio.sleep(10)
    assert len(watched.runtimes.polled_s) - before <= 10 / REST_S + 5


@in_virtual_time
async def test_a_reader_that_is_stopped_calls_nobody_any_more(watched):
    watched.reader.stop()
    await asyncio.sleep(0.001)
    calls = len(watched.runtimes.polled_s)
    watched.runtime.activate(REQUEST)
    await asyncio.sleep(3 * ROUND_S)
    assert len(watched.runtimes.polled_s) == calls
    assert watched.reader.reading.snapshot.models == ()
