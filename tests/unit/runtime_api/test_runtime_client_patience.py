"""Which sidecars are left alone, for how long, and what ends it."""

import pytest
from raw_server import http

from aibrix_operator.runtime_api import client as runtime_client
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Done, NotSent, Unknown
from aibrix_operator.runtime_api.patience import Patience

STOP = wire.DeactivateRequest(model_name="m")
WAKE = wire.WakeRequest(model_name="m", operation_id="o")
A, B = "10.0.0.1:8080", "10.0.0.2:8080"


def window_s(patience, address, now_s):
    """How long from ``now_s`` the address is left alone, to a tenth."""
    tenths = 0
    while patience.is_left_alone(address, now_s + tenths / 10):
        tenths += 1
    return tenths / 10


def test_windows_double_from_ten_seconds_to_a_minute():
    patience, now, lengths = Patience(), 0.0, []
    for _ in range(5):
        patience.timed_out(A, now, now)
        lengths.append(window_s(patience, A, now))
        now += 100
    assert lengths == [10, 20, 40, 60, 60]


def test_an_answer_ends_the_run():
    patience = Patience()
    patience.timed_out(A, 0, 0)
    patience.timed_out(A, 20, 20)
    patience.heard_from(A, 20)
    assert not patience.is_left_alone(A, 20)
    patience.timed_out(A, 30, 30)
    assert window_s(patience, A, 30) == 10


def test_a_call_sent_before_the_last_answer_tells_of_a_silence_that_is_over():
    patience = Patience()
    patience.timed_out(A, sent_at_s=0, now_s=10)
    patience.heard_from(A, 12)
    patience.timed_out(A, sent_at_s=5, now_s=35)
    assert not patience.is_left_alone(A, 35)
    patience.timed_out(A, sent_at_s=30, now_s=40)
    assert window_s(patience, A, 40) == 10


def test_one_silent_sidecar_says_nothing_of_another():
    patience = Patience()
    patience.timed_out(A, 0, 0)
    assert (patience.is_left_alone(A, 1), patience.is_left_alone(B, 1)) == (True, False)


def test_calls_that_were_under_way_together_count_once():
    patience = Patience()
    patience.timed_out(A, sent_at_s=0, now_s=10)
    patience.timed_out(A, sent_at_s=5, now_s=15)
    assert window_s(patience, A, 10) == 10


def test_addresses_of_pods_long_gone_are_forgotten():
    patience = Patience()
    patience.timed_out(A, 0, 0)
    patience.timed_out(B, 4_000, 4_000)
    patience.timed_out(A, 5_000, 5_000)
    assert window_s(patience, A, 5_000) == 10


@pytest.fixture
def impatient(monkeypatch):
    """Deadlines that a test can wait for. Half of one is for the connection, which a busy machine is to make in it."""
    monkeypatch.setattr(runtime_client, "SNAPSHOT_DEADLINE_S", 0.6)
    monkeypatch.setattr(runtime_client, "CALL_DEADLINE_S", 0.6)


async def test_a_silent_sidecar_is_not_called_again_but_for_deactivate(client, server, clock, impatient):
    server.reply = None
    assert isinstance(await client.snapshot(server.base), Unknown)
    left_alone = await client.wake(server.base, WAKE)
    assert isinstance(left_alone, NotSent)
    assert left_alone.left_alone
    assert left_alone.message.endswith("did not answer in time recently; not calling it again yet")
    assert f"127.0.0.1:{server.port}" in left_alone.message
    assert len(server.asked) == 1
    server.reply = http(200, '{"status":"success"}')
    assert isinstance(await client.deactivate(server.base, STOP), Done)
    server.reply = http(500, "")
    assert isinstance(await client.wake(server.base, WAKE), Unknown)  # the answer had ended the window
    assert len(server.asked) == 3


async def test_a_window_ends_by_itself_and_the_next_silence_doubles_it(client, server, clock, impatient):
    server.reply = None
    await client.snapshot(server.base)
    clock.now_s += 10
    assert isinstance(await client.snapshot(server.base), Unknown)
    clock.now_s += 19.9
    assert isinstance(await client.snapshot(server.base), NotSent)
    clock.now_s += 0.2
    server.reply = http(503, "")
    assert isinstance(await client.snapshot(server.base), Unknown)  # a fast failure is an answer
    server.reply = None
    await client.snapshot(server.base)
    clock.now_s += 10
    await client.snapshot(server.base)
    assert len(server.asked) == 5


async def test_a_silent_deactivate_counts_as_a_further_timeout(client, server, clock, impatient):
    server.reply = None
    await client.snapshot(server.base)
    clock.now_s += 1
    await client.deactivate(server.base, STOP)
    clock.now_s += 19.9
    assert isinstance(await client.snapshot(server.base), NotSent)
