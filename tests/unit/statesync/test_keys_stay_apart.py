"""Names of keys, and isolation: Y8."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_states import Plain
from sync_replicas import SLOW, few_examples, play

from aibrix_operator.statesync import keys

NAMESPACES = ["a", "a*", "ab", "a?", "[ab]", "a\\", "a\\*"]
PREFIXES = ["a", "a*", "a:e:", "ab", "[a]", "a\\"]
ODD_IDS = ["", ":e:", "x}", "{a}:e:x", "a*", "é", "\udcff", "x" * 300, "\n"]


@pytest.mark.acceptance("GW-129")
@few_examples
@given(
    ours=st.tuples(st.sampled_from(PREFIXES), st.sampled_from(NAMESPACES)),
    others=st.sets(st.tuples(st.sampled_from(PREFIXES), st.sampled_from(NAMESPACES)), max_size=6),
    entities=st.sets(st.sampled_from(ODD_IDS), min_size=1),
)
def test_y8_a_namespace_or_prefix_never_touches_another(backend, ours, others, entities):
    async def story(world):
        for prefix, namespace in others - {ours}:
            foreign = Plain(namespace, foreign=f"{prefix} {namespace}".encode())
            await world.replica(foreign, options=dataclasses.replace(SLOW, key_prefix=prefix)).cycle()
        before = {key: await world.redis.get(key) async for key in world.redis.scan_iter()}
        prefix, namespace = ours
        options = dataclasses.replace(SLOW, key_prefix=prefix)
        writer, reader = Plain(namespace, **dict.fromkeys(entities, b"1")), Plain(namespace)
        await world.replica(writer, options=options).cycle()
        await world.replica(reader, options=options).cycle()
        assert reader.held == writer.held == dict.fromkeys(entities, b"1")
        for key, value in before.items():
            assert await world.redis.get(key) == value
        assert await world.redis.dbsize() == len(before) + len(entities)

    play(backend, story)


def test_a_key_holds_its_namespace_as_the_hash_tag():
    assert keys.entity_key("aibrix", "prefixcache", "123") == b"aibrix:{prefixcache}:e:123"
    assert keys.scan_pattern("aibrix", "prefixcache") == b"aibrix:{prefixcache}:e:*"
    assert keys.news_channel("aibrix", "prefixcache") == "aibrix:{prefixcache}:news"


def test_a_key_of_another_namespace_has_no_id_here():
    assert keys.cut_entity("aibrix", "a", b"aibrix:{a}:e:x:y") == "x:y"
    assert keys.cut_entity("aibrix", "a", b"aibrix:{ab}:e:x") is None
    assert keys.cut_entity("aibrix", "a", b"aibrix:{b}:e:xx") is None


@pytest.mark.parametrize("namespace", ["", "a:b", "{a", "a}"])
def test_a_namespace_that_could_not_be_told_apart_is_refused(namespace):
    with pytest.raises(keys.BadName, match="namespace"):
        keys.check_namespace(namespace)


@pytest.mark.parametrize("prefix", ["", "{a}", "a{"])
def test_a_prefix_that_would_move_the_hash_tag_is_refused(prefix):
    with pytest.raises(keys.BadName, match="prefix"):
        keys.check_prefix(prefix)
