"""What the table of prompts' blocks remembers, for how long, and of whom."""

from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway.prefix_blocks import PrefixSettings, hashes_of, root
from aibrix_operator.gateway.prefix_table import NS, PrefixTable
from aibrix_operator.gateway.view import Endpoint

T0 = 1_800_000_000
ROOT = b"\0" * 8


def pod(name, uid=None, namespace="ns", model="m"):
    return Endpoint(model, namespace, name, uid or f"u-{namespace}-{name}", "10.0.0.1:8000")


P = tuple(pod(f"p{i}") for i in range(4))


def small(**changes):
    return PrefixTable(PrefixSettings(**{"block_bytes": 4, **changes}))


def blocks_of(text, table):
    return hashes_of(text, ROOT, table.settings)


def matched(table, text, candidates=P[:2], now_s=T0):
    return table.match("m", candidates, blocks_of(text, table), now_s)


def add(table, text, endpoint, now_s=T0):
    table.add("m", endpoint, blocks_of(text, table), now_s)


@pytest.mark.acceptance("GW-54")
def test_a_prompt_matches_as_far_as_it_is_equal():
    table = small()
    add(table, "0123456789ab", P[0])
    assert matched(table, "0123456789ab") == [3, 0]
    assert matched(table, "0123456789XX") == [2, 0]
    assert matched(table, "0123456789ab" + "cd") == [3, 0]
    assert matched(table, "X123456789ab") == [0, 0]
    assert matched(table, "012") == [0, 0]


@pytest.mark.acceptance("GW-55")
def test_a_block_counts_only_behind_the_same_blocks():
    table = small()
    add(table, "abcdefgh", P[0])
    add(table, "efghabcd", P[1])
    assert matched(table, "efghabcd") == [0, 2]
    assert matched(table, "efgh") == [0, 1]
    assert matched(table, "abcdabcd") == [1, 0]


@pytest.mark.acceptance("GW-58")
def test_blocks_live_for_20_minutes_after_their_last_use():
    table = small()
    add(table, "0123abcd", P[0])
    assert matched(table, "0123abcd", now_s=T0 + 19 * 60 + 59) == [2, 0]
    assert matched(table, "0123abcd", now_s=T0 + 20 * 60 + 1) == [0, 0]
    assert len(table) == 0


@pytest.mark.acceptance("GW-58")
def test_the_200_001st_block_drives_out_the_oldest():
    table = PrefixTable(PrefixSettings())
    for start in range(0, 200_000, 100):
        table.add("m", P[0], range(start, start + 100), T0 + start / 1000)
    assert len(table) == 200_000
    assert table.match("m", P[:1], range(100), T0 + 200) == [100]
    table.add("m", P[1], [200_000], T0 + 200)
    assert len(table) == 200_000
    assert table.match("m", P[:1], range(100), T0 + 200) == [99]
    assert table.match("m", P[:2], [200_000], T0 + 200) == [0, 1]


def test_a_hot_prompt_stays_when_the_table_turns_over_within_seconds():
    table = small(capacity=100)
    hot = list(range(10))
    for step in range(200):
        now_s = T0 + step * 0.1
        table.add("m", P[0], hot, now_s)
        table.add("m", P[1], range(1000 + 10 * step, 1010 + 10 * step), now_s)
        assert step < 20 or table.match("m", P[:1], hot, now_s) == [10]
    assert len(table) == 100


@pytest.mark.acceptance("GW-59")
@given(st.binary(max_size=100), st.integers(0, 2**64 - 1), st.integers(1, 16))
def test_hashes_are_xxhash64_of_parent_and_block(data, seed, block):
    text = data.decode("latin-1")
    raw = text.encode()
    settings = PrefixSettings(seed=seed, block_bytes=block)
    parent, expected = root("m", settings), []
    for start in range(0, len(raw) - block + 1, block):
        found = xxhash.xxh64(parent + raw[start : start + block], seed=seed).intdigest()
        expected.append(found)
        parent = struct.pack("<Q", found)
    assert hashes_of(text, root("m", settings), settings) == tuple(expected)


def test_only_so_many_blocks_of_a_prompt_are_hashed():
    settings = PrefixSettings(block_bytes=4, most_hashed=3)
    assert len(hashes_of("x" * 1000, ROOT, settings)) == 3
    assert len(hashes_of("é" * 5, ROOT, settings)) == 2
    assert hashes_of("é" * 1000, ROOT, settings) == hashes_of("é" * 6, ROOT, settings)
    assert len(hashes_of("\ud800" * 2, ROOT, settings)) == 1


@pytest.mark.acceptance("GW-60")
def test_a_pod_that_took_anothers_name_has_none_of_its_blocks():
    table = small()
    add(table, "0123abcd", P[0])
    again = pod("p0", uid="another")
    assert matched(table, "0123abcd", (again, P[1])) == [0, 0]
    assert matched(table, "0123abcd", P[:1]) == [2]


@pytest.mark.acceptance("GW-60")
def test_a_pod_that_is_gone_matches_nothing_and_is_freed():
    table = small()
    add(table, "0123abcd", P[0])
    add(table, "0123", P[1])
    table.forget(P[0].uid)
    assert matched(table, "0123abcd") == [0, 1]
    table.sweep(T0)
    assert len(table) == 1
    table.forget(P[1].uid)
    table.sweep(T0)
    assert len(table) == 0
    add(table, "0123abcd", P[0])
    assert matched(table, "0123abcd") == [2, 0]


def test_an_engine_that_lost_its_cache_matches_nothing_until_it_has_served_again():
    table = small()
    add(table, "0123abcd", P[0])
    add(table, "0123", P[1])
    table.forget_engine("m", P[0].incarnation, T0 + 1)
    assert matched(table, "0123abcd") == [0, 1]
    add(table, "0123", P[0], T0 + 2)
    assert matched(table, "0123abcd") == [1, 1]
    table.sweep(T0 + 2)
    assert matched(table, "0123abcd") == [1, 1]
    assert len(table) == 1


def test_what_others_tell_of_an_engine_before_it_lost_its_cache_is_not_believed():
    table = small(ttl_s=60)
    table.tell_changes(lambda *_: None)
    block, later = blocks_of("0123abcd", table)
    add(table, "0123", P[0])
    table.forget_engine("m", P[0].incarnation, T0 + 1)
    assert not table.learn(block, "m", P[0].incarnation, T0 * NS, {})
    assert not table.learn(block, "m", P[0].incarnation, (T0 + 1) * NS, {})
    assert matched(table, "0123") == [0, 0]
    assert table.learn(later, "m", P[0].incarnation, (T0 + 2) * NS, {})
    assert (table.uses(block), table.uses(later)) == (None, ("m", {P[0].incarnation: (T0 + 2) * NS}))
    table.sweep(T0 + 62)
    assert not table._ended_ns


def test_an_engine_without_blocks_may_lose_its_cache():
    table = small()
    table.forget_engine("m", P[0].incarnation, T0)
    assert matched(table, "0123") == [0, 0]


@pytest.mark.acceptance("GW-60")
def test_equal_names_in_two_namespaces_are_two_pods():
    table = small()
    add(table, "0123abcd", P[0])
    assert matched(table, "0123abcd", (pod("p0", namespace="other"), P[0])) == [0, 2]


def test_models_share_no_blocks():
    table = small()
    first, second = (hashes_of("0123abcd", root(name, table.settings), table.settings) for name in ("m", "n"))
    assert not set(first) & set(second)
    table.add("m", P[0], first, T0)
    assert table.match("n", P[:1], second, T0) == [0]


Step = st.tuples(
    st.sampled_from(["add", "learn", "forget", "sweep"]),
    st.integers(0, 3),
    st.text("ab", min_size=0, max_size=6),
    st.integers(0, 500),
)


@given(st.lists(Step, max_size=40), st.sampled_from([1000, 5]))
def test_the_table_agrees_with_a_plain_one(steps, capacity):
    """A dictionary from Pod to block to last use, walked as the definition says."""
    table = PrefixTable(PrefixSettings(block_bytes=1, capacity=capacity))
    plain: dict[str, dict[int, int]] = {endpoint.uid: {} for endpoint in P}
    now_s = T0
    for kind, who, text, wait_s in steps:
        now_s += wait_s
        blocks = blocks_of(text, table)
        uses = plain[P[who].uid]
        if kind == "add":
            add(table, text, P[who], now_s)
            if blocks and now_s - uses.get(blocks[-1], 0) >= 60:
                uses.update(dict.fromkeys(blocks, now_s))
        elif kind == "learn":
            for block in blocks:
                table.learn(block, "m", P[who].incarnation, (now_s - 100) * 10**9, {})
                uses[block] = max(uses.get(block, 0), now_s - 100)
        elif kind == "forget":
            table.forget(P[who].uid)
            uses.clear()
        else:
            table.sweep(now_s)
        for endpoint in P:
            kept = plain[endpoint.uid]
            plain[endpoint.uid] = {b: at for b, at in kept.items() if int(at) > int(now_s) - 1201}
        expected = []
        for endpoint in P:
            depth = 0
            while depth < len(blocks) and blocks[depth] in plain[endpoint.uid]:
                depth += 1
            expected.append(depth)
        found = table.match("m", P, blocks, now_s)
        assert len(table) <= capacity
        if capacity == 1000:
            assert found == expected
        else:
            assert all(a <= b for a, b in zip(found, expected, strict=True))
    table.sweep(now_s + 5000)
    assert len(table) == 0
    assert table.match("m", P, blocks_of("ab", table), now_s + 5000) == [0, 0, 0, 0]


def test_settings_come_from_the_environment():
    from random import Random

    def read(environ, *, is_shared=False):
        return PrefixSettings.from_env(environ, is_shared=is_shared, random=Random(1))

    assert read({}).seed == Random(1).getrandbits(64)
    assert read({}, is_shared=True) == PrefixSettings()
    named = {"AIBRIX_PREFIX_CACHE_HASH_SEED": "7", "AIBRIX_PREFIX_CACHE_BLOCK_SIZE": "64"}
    assert read(named) == PrefixSettings(seed=7, block_bytes=64)
    assert read({"AIBRIX_PREFIX_CACHE_BLOCK_NUMBER": "1000"}, is_shared=True).capacity == 1000
    for bad in ("", "x", "-1", "0", "1.5", "9" * 99):
        environ = {"AIBRIX_PREFIX_CACHE_BLOCK_SIZE": bad, "AIBRIX_PREFIX_CACHE_BLOCK_NUMBER": bad}
        assert read(environ, is_shared=True) == PrefixSettings()
    assert read({"AIBRIX_PREFIX_CACHE_HASH_SEED": "x"}, is_shared=True).seed == 0


@given(st.lists(st.integers(0, 15), min_size=16, max_size=16), st.integers(1, 15))
def test_a_match_finds_every_pods_depth(parts, length):
    table = PrefixTable(PrefixSettings())
    pods = tuple(pod(f"p{place}") for place in range(16))
    for endpoint, part in zip(pods, parts, strict=True):
        table.add("m", endpoint, range(part), T0)
    assert table.match("m", pods, range(length), T0) == [min(part, length) for part in parts]
    some = pods[3:9]
    assert table.match("m", list(some), range(length), T0) == [min(part, length) for part in parts[3:9]]


@given(st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 9))), max_size=4), st.integers(1, 10))
def test_a_gap_that_others_words_left_is_matched_over_and_never_short(heard, length):
    """Blocks are heard of one by one. What is found is never less than the blocks without a gap, and ends in one."""
    table = PrefixTable(PrefixSettings())
    held: dict[int, set[int]] = {place: set() for place in range(4)}
    for place, blocks in heard:
        held[place] |= blocks
        for block in sorted(blocks, reverse=True):
            table.learn(block, "m", P[place].incarnation, T0 * 10**9, {})
    for place, depth in enumerate(table.match("m", P, range(length), T0)):
        gapless = next(i for i in range(11) if i not in held[place])
        assert depth >= min(gapless, length)
        assert not depth or depth - 1 in held[place]


def test_two_models_blocks_with_one_hash_do_no_harm():
    table = PrefixTable(PrefixSettings(capacity=3))
    heard = []
    table.tell_changes(lambda blocks, new, at_ns: heard.append(tuple(new)))
    table.add("m", P[0], [1, 2], T0)
    table.add("n", P[1], [1, 2], T0)
    table.add("n", P[2], [1], T0 + 1)
    for _ in range(2):
        assert set(table.match("m", P[:1], [1, 2], T0)) <= {0, 1, 2}
        assert table.uses(1) is None or table.uses(1)[0] in ("m", "n")
        table.add("o", P[3], [5, 6, 7], T0 + 2)
    table.sweep(T0 + 5000)
    assert len(table) == 0
    assert heard == [(1, 2), (1, 2), (1,), (5, 6, 7)]
