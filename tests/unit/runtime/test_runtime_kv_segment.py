"""The KV segment: what is read of it, and that a limit is written under its lock or not at all."""

import asyncio
import fcntl
import struct

import pytest

from aibrix_operator.runtime import kv_segment
from aibrix_operator.runtime.kv_segment import KVSegment, SegmentLockedError

TAIL = b"the engine's own bytes"


def plant(directory, total=100, used=30, prealloc=7):
    (directory / "kvc_m").write_bytes(struct.pack("<qqq", total, used, prealloc) + TAIL)


def test_reading_gives_the_three_figures(tmp_path):
    plant(tmp_path)
    segment = kv_segment.read(tmp_path, "kvc_m")
    assert segment == KVSegment(100, 30, 7)
    assert segment.mapped_bytes == 37


@pytest.mark.parametrize("content", [None, b"", b"x" * 23], ids=["missing", "empty", "short"])
async def test_a_segment_that_is_none_reads_as_missing_and_takes_no_limit(tmp_path, content):
    if content is not None:
        (tmp_path / "kvc_m").write_bytes(content)
    assert kv_segment.read(tmp_path, "kvc_m") is None
    assert await kv_segment.write_limit(tmp_path, "kvc_m", 5) is False
    assert content is None or (tmp_path / "kvc_m").read_bytes() == content


async def test_a_limit_changes_eight_bytes_and_no_more(tmp_path):
    plant(tmp_path)
    assert await kv_segment.write_limit(tmp_path, "kvc_m", 2**40)
    assert kv_segment.read(tmp_path, "kvc_m") == KVSegment(2**40, 30, 7)
    assert (tmp_path / "kvc_m").read_bytes()[24:] == TAIL


async def test_a_locked_segment_is_waited_for(tmp_path):
    plant(tmp_path)
    with (tmp_path / "kvc_m").open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        writing = asyncio.create_task(kv_segment.write_limit(tmp_path, "kvc_m", 5))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not writing.done()
        assert kv_segment.read(tmp_path, "kvc_m").total_bytes == 100
        fcntl.flock(holder, fcntl.LOCK_UN)
        assert await writing
    assert kv_segment.read(tmp_path, "kvc_m").total_bytes == 5


async def test_a_segment_that_stays_locked_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(kv_segment, "LOCK_DEADLINE_S", 0.03)
    plant(tmp_path)
    with (tmp_path / "kvc_m").open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(SegmentLockedError, match="kvc_m stayed locked"):
            await kv_segment.write_limit(tmp_path, "kvc_m", 5)
    assert kv_segment.read(tmp_path, "kvc_m") == KVSegment(100, 30, 7)


async def test_the_lock_is_given_back(tmp_path):
    plant(tmp_path)
    await kv_segment.write_limit(tmp_path, "kvc_m", 5)
    with (tmp_path / "kvc_m").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_lock_is_tried_every_ten_milliseconds_for_five_seconds():
    assert (kv_segment.LOCK_RETRY_S, kv_segment.LOCK_DEADLINE_S) == (0.01, 5.0)
