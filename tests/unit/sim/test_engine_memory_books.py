"""An engine's books with cards and segment, within one process."""

import fcntl
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aibrix_operator.sim import card
from aibrix_operator.sim.engine.memory import Grant, Memory
from aibrix_operator.sim.engine.profile import Profile
from aibrix_operator.sim.engine.segment import Segment, from_environment

PROFILE = Profile(footprint_bytes=400, asleep_footprint_bytes=50, kv_bytes_per_token=10, kv_page_bytes=100)


class Books:
    """Memory over one card of 1000 bytes and a segment, both read back from their files."""

    def __init__(self, folder, profile=PROFILE):
        (self.gpu,) = card.create(folder / "cards", [card.Card("GPU-a", 1000)])
        self.folder = folder
        self.memory = Memory(profile, folder / "cards", [self.gpu], Segment(folder / "kv"))
        self.memory.boot()
        self.memory.open_pool()

    def segment(self):
        return struct.unpack("<3q", (self.folder / "kv").read_bytes())

    def write_limit(self, limit_bytes):
        with (self.folder / "kv").open("r+b") as file:
            file.write(struct.pack("<q", limit_bytes))

    def held(self):
        (only,) = card.holdings(self.folder / "cards", "GPU-a")
        return only.footprint_bytes, only.kv_bytes


@pytest.fixture
def books(tmp_path):
    return Books(tmp_path)


def test_kv_is_mapped_in_whole_pages(books):
    assert books.memory.resize(11) is Grant.GIVEN
    assert (books.segment(), books.held()) == ((1000, 200, 0), (400, 200))
    assert books.memory.resize(20) is Grant.GIVEN
    assert books.segment() == (1000, 200, 0)
    assert books.memory.resize(0) is Grant.GIVEN
    assert (books.segment(), books.held()) == ((1000, 0, 0), (400, 0))


def test_the_limit_in_force_is_the_one_in_the_segment(books):
    books.write_limit(300)
    assert books.memory.limit_bytes == 300
    assert books.memory.resize(31) is Grant.OVER_LIMIT
    assert (books.segment(), books.held()) == ((300, 0, 0), (400, 0))
    assert not books.memory.fits(31)
    assert books.memory.resize(30) is Grant.GIVEN
    assert books.memory.usage == 1.0


def test_a_lower_limit_evicts_nothing_and_stays(books):
    books.memory.resize(40)
    books.write_limit(100)
    assert books.memory.resize(41) is Grant.OVER_LIMIT
    assert (books.segment(), books.held()) == ((100, 400, 0), (400, 400))
    assert books.memory.usage == 1.0


def test_more_than_the_card_has_raises_and_changes_nothing(books):
    with pytest.raises(card.CardOutOfMemory):
        books.memory.resize(61)
    assert (books.segment(), books.held(), books.memory.used_bytes) == ((1000, 0, 0), (400, 0), 0)


def test_a_locked_segment_refuses_growth_for_now_and_learns_of_a_shrink_later(books):
    books.memory.resize(20)
    with (books.folder / "kv").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert books.memory.resize(30) is Grant.BUSY
        assert books.memory.resize(5) is Grant.GIVEN
        assert (books.segment(), books.held()) == ((1000, 200, 0), (400, 100))
        assert not books.memory.is_published
        books.memory.publish()
        assert not books.memory.is_published
    books.memory.publish()
    assert (books.segment(), books.memory.is_published) == ((1000, 100, 0), True)


def test_sleep_and_wake_swap_the_footprints_and_drop_all_kv(books):
    books.memory.resize(20)
    books.memory.sleep()
    assert (books.segment(), books.held()) == ((1000, 0, 0), (50, 0))
    books.memory.wake()
    assert books.held() == (400, 0)


def test_preallocated_pages_count_as_mapped_and_give_way_to_a_lower_limit(tmp_path):
    books = Books(tmp_path, Profile(footprint_bytes=400, kv_bytes_per_token=10, kv_page_bytes=100, prealloc_bytes=150))
    assert (books.segment(), books.held()) == ((1000, 0, 200), (400, 200))
    books.memory.resize(10)
    assert books.segment() == (1000, 100, 100)
    books.memory.resize(30)
    assert books.segment() == (1000, 300, 0)
    books.memory.resize(20)
    assert (books.segment(), books.held()) == ((1000, 200, 100), (400, 300))
    books.write_limit(250)
    books.memory.resize(10)
    assert (books.segment(), books.held()) == ((250, 100, 100), (400, 200))
    books.memory.resize(20)
    assert (books.segment(), books.held()) == ((250, 200, 0), (400, 200))


@settings(deadline=None)  # it writes files; how long that takes is the machine's affair
@given(
    st.lists(
        st.one_of(st.tuples(st.just("tokens"), st.integers(0, 60)), st.tuples(st.just("limit"), st.integers(0, 1000)))
    )
)
def test_card_and_segment_agree_after_any_sequence(tmp_path_factory, steps):
    books = Books(tmp_path_factory.mktemp("books"), PROFILE)
    for kind, value in steps:
        if kind == "limit":
            books.write_limit(value)
            continue
        before, limit = books.memory.used_bytes, books.memory.limit_bytes
        try:
            grant = books.memory.resize(value)
        except card.CardOutOfMemory:
            assert books.memory.used_bytes == before
            continue
        if grant is Grant.OVER_LIMIT:
            assert books.memory.used_bytes == before < value * 10
        else:
            assert value * 10 <= books.memory.used_bytes < value * 10 + 100
            assert books.memory.used_bytes <= max(before, limit)
        _, used, prealloc = books.segment()
        assert (used, used + prealloc) == (books.memory.used_bytes, books.held()[1])


def test_the_environment_names_the_segment_or_there_is_none(tmp_path):
    environ = {"AIBRIX_KV_SEGMENT_DIR": str(tmp_path), "KVCACHED_IPC_NAME": "kvc_a"}
    segment = from_environment(environ)
    assert not (tmp_path / "kvc_a").exists()
    segment.rebuild(77)
    assert (tmp_path / "kvc_a").read_bytes() == struct.pack("<3q", 77, 0, 0)
    assert from_environment({}) is None
    assert from_environment({**environ, "ENABLE_KVCACHED": "false"}) is None
    assert from_environment({**environ, "ENABLE_KVCACHED": "true"}) is not None
