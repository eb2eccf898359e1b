"""prefix-cache-preble: when a cache is followed, and where work goes otherwise."""

from __future__ import annotations

import pytest
from strategy_builders import NOW_S, drawn, make_ask, make_model, make_request

from aibrix_operator.gateway.knobs import Knobs, PrebleKnobs
from aibrix_operator.gateway.prefix_blocks import PrefixSettings
from aibrix_operator.gateway.strategies.prefix_cache_preble import PrefixCachePreble

MODEL = make_model(3)
PROMPT = "".join(chr(ord("a") + n % 26) + chr(ord("a") + n // 26) for n in range(100))


@pytest.fixture
def preble():
    return PrefixCachePreble(PrefixSettings(block_bytes=2))


def place(preble, text, pod, **more):
    preble.admitted(make_ask(MODEL, request=make_request(text), **more), MODEL.endpoints[pod])


def picked(preble, text, **more):
    return set(drawn(preble, make_ask(MODEL, request=make_request(text), **more), 30))


@pytest.mark.acceptance("GW-62")
@pytest.mark.parametrize(("matched", "pods"), [(50, {"p1", "p2"}), (51, {"p0"})])
def test_a_cache_is_followed_when_it_has_more_than_half(preble, matched, pods):
    place(preble, PROMPT[: 2 * matched], 0)
    assert picked(preble, PROMPT) == pods


@pytest.mark.acceptance("GW-62")
def test_entries_live_for_five_minutes(preble):
    place(preble, PROMPT, 0)
    place(preble, "zz" * 3000, 1)
    place(preble, "yy" * 3000, 2)
    assert picked(preble, PROMPT, now_s=NOW_S + 299) == {"p0"}
    assert picked(preble, PROMPT, now_s=NOW_S + 302) == {"p0", "p1", "p2"}


def test_of_equal_matches_the_one_with_less_in_the_window_serves(preble):
    for pod in (0, 1):
        place(preble, PROMPT, pod)
    place(preble, "zz" * 50, 0)
    assert picked(preble, PROMPT) == {"p1"}
    assert picked(preble, PROMPT, now_s=NOW_S + 181) == {"p0", "p1"}


def test_without_a_match_the_cheapest_engine_serves(preble):
    place(preble, "zz" * 50, 0)
    place(preble, "yy" * 5, 1)
    place(preble, "xx" * 5, 2)
    place(preble, "ww" * 5, 2)
    assert picked(preble, PROMPT) == {"p1"}
    assert picked(preble, "") == {"p1"}
    assert picked(preble, PROMPT, now_s=NOW_S + 180) == {"p0", "p1", "p2"}


def test_what_an_engine_has_already_costs_no_prefill(preble):
    knobs = Knobs(preble=PrebleKnobs(decoding_length=0))
    place(preble, PROMPT, 0, knobs=knobs)
    first = preble.scores(make_ask(MODEL))[0]
    place(preble, PROMPT, 0, knobs=knobs)
    assert preble.scores(make_ask(MODEL))[0] == first
    place(preble, PROMPT, 1, knobs=knobs)
    assert preble.scores(make_ask(MODEL))[1] == pytest.approx(first / 2)


def test_a_faster_card_costs_less(preble):
    knobs = Knobs(preble=PrebleKnobs(target_gpu="A6000", decoding_length=0))
    place(preble, PROMPT, 0, knobs=Knobs(preble=PrebleKnobs(decoding_length=0)))
    place(preble, PROMPT[::-1], 1, knobs=knobs)
    slow, fast, _ = preble.scores(make_ask(MODEL))
    assert 0 < fast < slow


def test_scoring_remembers_nothing(preble):
    ask = make_ask(MODEL, request=make_request(PROMPT))
    for _ in range(3):
        preble.scores(ask)
    assert preble.scores(make_ask(MODEL, request=make_request(PROMPT))) == [0.0, 0.0, 0.0]
