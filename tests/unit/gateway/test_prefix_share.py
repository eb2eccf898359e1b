"""What replicas tell each other of the prompts that they placed."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway.prefix_blocks import PrefixSettings, hashes_of, root
from aibrix_operator.gateway.prefix_share import PrefixShare
from aibrix_operator.gateway.prefix_table import NS, PrefixTable
from aibrix_operator.gateway.view import Endpoint, Model
from aibrix_operator.statesync import syncable

T0 = 1_800_000_000
PODS = tuple(Endpoint("m", "ns", f"p{i}", f"u{i}", f"10.0.0.{i}:8000") for i in range(3))


class Replica:
    def __init__(self, pods=PODS, **settings):
        self.now_s = float(T0)
        self.models = {"m": Model("m", pods)}
        self.table = PrefixTable(PrefixSettings(**{"block_bytes": 4, **settings}))
        self.share = PrefixShare(self.table, self.models, lambda: self.now_s)

    def blocks(self, text):
        return hashes_of(text, root("m", self.table.settings), self.table.settings)

    def add(self, text, place=0):
        self.table.add("m", PODS[place], self.blocks(text), self.now_s)

    def matched(self, text):
        return self.table.match("m", PODS, self.blocks(text), self.now_s)

    def pull(self, remote):
        """One cycle's reading, as the layer does it."""
        self.share.on_sync_start()
        share = self.share
        wanted = {e: d for e, d in remote.items() if not share.is_stale(e, d) and share.apply_remote(e, d)}
        self.share.on_sync_end()
        return wanted

    def push(self, remote):
        delta = self.share.get_delta()
        remote.update(self.share.encode(delta.changes.updated))
        self.share.clear_dirty(delta.generation)


def test_it_offers_what_the_layer_looks_for():
    share = Replica().share
    for kind in ("Lasting", "Announcing", "StalePolicy", "SyncHooks", "OwnTtl", "DeltaSyncable"):
        assert isinstance(share, getattr(syncable, kind)), kind
    assert share.life_s <= share.record_ttl_s == 1200


@pytest.mark.acceptance("GW-121")
@pytest.mark.acceptance("Y18")
@given(prompt=st.text("abc", min_size=4, max_size=60), place=st.integers(0, 2))
def test_what_one_replica_placed_the_other_matches(prompt, place):
    a, b, remote = Replica(), Replica(), {}
    a.add(prompt, place)
    a.push(remote)
    b.pull(remote)
    assert b.matched(prompt) == a.matched(prompt)
    assert max(b.matched(prompt)) == len(prompt) // 4
    for other in (Replica(seed=1), Replica(block_bytes=8)):
        assert other.share.namespace != a.share.namespace
        other.pull(remote)
        assert other.matched(prompt + "abcabcab") == [0, 0, 0]


def test_values_name_model_pod_and_port():
    a, remote = Replica(), {}
    a.add("0123")
    a.push(remote)
    (entity,) = remote
    assert entity == str(a.blocks("0123")[0])
    assert orjson.loads(remote[entity]) == {"model_to_pods": {"m": {"ns/p0:8000#u0": T0 * NS}}}
    assert a.share.namespace == "prefixcache-b4-s0"
    assert a.share.snapshot() == remote
    assert a.share.live_ids() == [entity]


def test_applying_makes_nothing_dirty():
    a, b, remote = Replica(), Replica(), {}
    a.add("0123abcd")
    a.push(remote)
    b.pull(remote)
    assert b.share.dirty_count == 0
    assert b.share.take_news(10) is None


def test_a_block_keeps_the_age_it_has_where_it_was_used():
    a, b, remote = Replica(), Replica(), {}
    a.add("0123abcd")
    a.push(remote)
    b.now_s = T0 + 1100
    b.pull(remote)
    assert b.matched("0123abcd") == [2, 0, 0]
    b.now_s = T0 + 1202
    assert b.matched("0123abcd") == [0, 0, 0]
    assert all(b.share.is_stale(entity, data) for entity, data in remote.items())
    assert b.pull(remote) == {}
    assert len(b.table) == 0


def test_a_clock_that_is_ahead_makes_nothing_live_longer():
    a, b, remote = Replica(), Replica(), {}
    a.now_s = T0 + 5000
    a.add("0123")
    a.push(remote)
    b.pull(remote)
    b.now_s = T0 + 1202
    assert b.matched("0123") == [0, 0, 0]


@pytest.mark.acceptance("GW-60")
def test_pods_that_are_gone_or_were_made_anew_are_left_out():
    a, remote = Replica(), {}
    a.add("0123", 0)
    a.add("0123", 1)
    a.push(remote)
    again = Endpoint("m", "ns", "p1", "another uid", PODS[1].address)
    b = Replica(pods=(again, PODS[2]))
    b.pull(remote)
    assert len(b.table) == 0
    b.models["m"] = Model("m", (PODS[0], again))
    b.pull(remote)
    assert b.matched("0123") == [1, 0, 0]
    del b.models["m"]
    b.pull(remote)
    a.table.forget("u0")
    assert {tuple(orjson.loads(v)["model_to_pods"]["m"]) for v in a.share.snapshot().values()} == {
        (PODS[1].incarnation,)
    }


def test_a_value_that_lacks_what_is_held_here_is_wanted_anew():
    a, b, remote = Replica(), Replica(), {}
    a.add("0123", 0)
    b.add("0123", 1)
    a.push(remote)
    b.push(remote)
    wanted = a.pull(remote)
    assert set(wanted) == set(remote)
    remote.update(a.share.encode(wanted))
    assert a.pull(remote) == b.pull(remote) == {}
    assert a.matched("0123") == b.matched("0123") == [1, 1, 0]


@pytest.mark.acceptance("GW-126")
def test_dirty_blocks_that_were_evicted_leave_nothing_behind():
    a = Replica(capacity=2)
    a.add("aaaabbbb")
    a.now_s += 1
    a.add("ccccdddd")
    delta = a.share.get_delta()
    assert len(a.share.encode(delta.changes.updated)) == 2
    a.share.clear_dirty(delta.generation, failed=list(delta.changes.updated)[:1])
    assert a.share.dirty_count == 1


def test_a_hot_prompt_is_told_once_a_minute():
    a, remote = Replica(), {}
    told = []
    a.share.announce_to(lambda: told.append(a.now_s))
    for _ in range(125):
        a.add("0123abcd")
        a.share.take_news(100)
        a.push(remote)
        a.now_s += 1
    assert told == [T0, T0 + 60, T0 + 120]


def test_a_prompt_that_another_pod_has_too_now_is_told_at_once():
    a, b, remote = Replica(), Replica(), {}
    a.add("0123abcd", 0)
    a.push(remote)
    a.now_s += 1
    a.add("0123abcd", 1)
    a.push(remote)
    b.now_s = a.now_s
    b.pull(remote)
    assert b.matched("0123abcd") == [2, 2, 0]


@pytest.mark.acceptance("Y20")
@pytest.mark.parametrize(
    ("entity", "data"),
    [
        ("12", b"{"), ("12", b"[]"), ("12", b"{}"), ("12", b'{"model_to_pods":[]}'), ("12", b""),
        ("12", b'{"model_to_pods":{"m":{"ns/p0:8000#u0":"x"}}}'), ("12", b'{"model_to_pods":{"m":{"p":-5}}}'),
        ("x", b'{"model_to_pods":{}}'), ("-1", b'{"model_to_pods":{}}'), (str(2**64), b'{"model_to_pods":{}}'),
        ("٣", b'{"model_to_pods":{}}'), ("9" * 5000, b'{"model_to_pods":{}}'),
    ],
)  # fmt: skip
def test_a_corrupt_value_is_refused_and_never_taken_for_stale(entity, data):
    b = Replica()
    with pytest.raises(ValueError):  # noqa: PT011 - orjson's own and ours
        b.share.apply_remote(entity, data)
    assert entity != "12" or not b.share.is_stale(entity, data)
    assert len(b.table) == 0


Values = st.dictionaries(st.sampled_from([e.incarnation for e in PODS]), st.integers(T0 - 1000, T0), max_size=3)


@pytest.mark.acceptance("Y1")
@given(st.lists(Values, min_size=1, max_size=4), st.randoms())
def test_merging_is_the_same_in_any_order_and_twice(values, random):
    encoded = [orjson.dumps({"model_to_pods": {"m": {pod: at * NS for pod, at in value.items()}}}) for value in values]
    a, b = Replica(), Replica()
    for data in encoded:
        a.share.apply_remote("7", data)
    random.shuffle(encoded)
    for data in encoded + encoded:
        b.share.apply_remote("7", data)
    assert {k: orjson.loads(v) for k, v in a.share.snapshot().items()} == {
        k: orjson.loads(v) for k, v in b.share.snapshot().items()
    }
