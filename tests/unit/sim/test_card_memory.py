"""Simulated GPU memory: several processes share a card, and it really runs out."""

import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from aibrix_operator.sim import card

GIB = 1024**3


@pytest.fixture
def sleeper():
    """A process of its own that does nothing, until the test kills it."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


def _grab(directory, uuid, barrier, outcome):
    barrier.wait()
    try:
        card.hold(directory, uuid, footprint_bytes=GIB)
        outcome.put("held")
    except card.CardOutOfMemory:
        outcome.put("refused")
    barrier.wait()  # whoever holds lives until all have tried


def test_an_h20_has_the_published_usable_memory(tmp_path):
    (only,) = card.create(tmp_path, ["h20"])
    assert only.usable_bytes == 102_102_110_044


@pytest.mark.parametrize(
    ("kind", "usable"),
    [("24Gi", 24 * GIB), ("25769803776", 24 * GIB), ("1G", 10**9), ("512Mi", 512 * 2**20)],
)
def test_a_size_is_the_usable_memory(tmp_path, kind, usable):
    (only,) = card.create(tmp_path, [kind])
    assert (only.usable_bytes, card.free_bytes(tmp_path, only.uuid)) == (usable, usable)


@pytest.mark.parametrize("kind", ["", "0", "24gb", "-1Gi", "h21", "1.5Gi"])
def test_what_is_neither_size_nor_preset_is_refused(tmp_path, kind):
    with pytest.raises(ValueError, match="neither a positive size nor one of"):
        card.create(tmp_path, [kind])


def test_cards_keep_their_order_and_have_own_uuids(tmp_path):
    created = card.create(tmp_path, ["24Gi", "h20", "24Gi"])
    assert card.read_cards(tmp_path) == created
    assert len({c.uuid for c in created}) == 3


def test_footprint_and_kv_are_set_apart_and_counted_together(tmp_path):
    (gpu,) = card.create(tmp_path, ["10Gi"])
    card.hold(tmp_path, gpu.uuid, footprint_bytes=3 * GIB)
    card.hold(tmp_path, gpu.uuid, kv_bytes=2 * GIB)
    start = card.start_ticks_of(os.getpid())
    assert card.holdings(tmp_path, gpu.uuid) == (card.Holding(os.getpid(), start, 3 * GIB, 2 * GIB),)
    assert card.free_bytes(tmp_path, gpu.uuid) == 5 * GIB
    card.release(tmp_path, gpu.uuid)
    assert card.holdings(tmp_path, gpu.uuid) == ()


def test_exactly_what_is_free_fits_and_one_byte_more_does_not(tmp_path, sleeper):
    (gpu,) = card.create(tmp_path, [card.Card("GPU-a", total_bytes=1000, reserved_bytes=100)])
    card.hold(tmp_path, gpu.uuid, footprint_bytes=600, pid=sleeper.pid)
    card.hold(tmp_path, gpu.uuid, footprint_bytes=200)
    with pytest.raises(card.CardOutOfMemory) as refused:
        card.hold(tmp_path, gpu.uuid, kv_bytes=101)
    assert (refused.value.wanted_bytes, refused.value.free_bytes) == (101, 100)
    assert card.used_bytes(tmp_path, gpu.uuid) == 800
    card.hold(tmp_path, gpu.uuid, kv_bytes=100)
    assert card.free_bytes(tmp_path, gpu.uuid) == 0


def test_a_killed_process_holds_nothing_even_before_it_is_reaped(tmp_path, sleeper):
    (gpu,) = card.create(tmp_path, ["1Gi"])
    card.hold(tmp_path, gpu.uuid, footprint_bytes=GIB, pid=sleeper.pid)
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # dead, still a zombie
    assert card.used_bytes(tmp_path, gpu.uuid) == 0
    card.hold(tmp_path, gpu.uuid, footprint_bytes=GIB)
    assert [path.name for path in (tmp_path / gpu.uuid).glob("*-*")] == [
        f"{os.getpid()}-{card.start_ticks_of(os.getpid())}"
    ]


def test_a_pid_given_out_again_does_not_inherit(tmp_path):
    (gpu,) = card.create(tmp_path, ["1Gi"])
    start = card.start_ticks_of(os.getpid())
    (tmp_path / gpu.uuid / f"{os.getpid()}-{start - 1}").write_text(f"{GIB} 0")
    assert card.used_bytes(tmp_path, gpu.uuid) == 0


def test_a_file_left_unfinished_by_a_dead_process_is_harmless(tmp_path, sleeper):
    (gpu,) = card.create(tmp_path, ["1Gi"])
    start = card.start_ticks_of(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    (tmp_path / gpu.uuid / f"{sleeper.pid}-{start}").write_text("10737")
    assert card.holdings(tmp_path, gpu.uuid) == ()


def test_processes_that_race_get_no_more_than_the_card_has(tmp_path):
    (gpu,) = card.create(tmp_path, ["3Gi"])
    context = multiprocessing.get_context("fork")
    barrier, outcome = context.Barrier(8), context.Queue()
    racers = [context.Process(target=_grab, args=(tmp_path, gpu.uuid, barrier, outcome)) for _ in range(8)]
    for racer in racers:
        racer.start()
    outcomes = sorted(outcome.get(timeout=20) for _ in racers)
    for racer in racers:
        racer.join(timeout=20)
    assert outcomes == ["held"] * 3 + ["refused"] * 5


def test_holding_for_a_process_that_is_gone_is_an_error(tmp_path, sleeper):
    (gpu,) = card.create(tmp_path, ["3Gi"])
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(ProcessLookupError):
        card.hold(tmp_path, gpu.uuid, footprint_bytes=1, pid=sleeper.pid)


def test_a_container_sees_only_the_cards_named_to_it(tmp_path):
    first, second, third = card.create(tmp_path, ["1Gi", "2Gi", "3Gi"])
    assert card.visible_cards(tmp_path, None) == (first, second, third)
    assert card.visible_cards(tmp_path, "all") == (first, second, third)
    assert card.visible_cards(tmp_path, f"{third.uuid}, 0") == (first, third)
    assert card.visible_cards(tmp_path, "none") == ()
