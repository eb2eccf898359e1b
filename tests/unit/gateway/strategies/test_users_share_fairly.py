"""vtc-basic: where users go by the tokens they took, and how charges are corrected."""

from __future__ import annotations

import pytest
from strategy_builders import NOW_S, drawn, make_ask, make_endpoint, make_model, make_request, pod_of

from aibrix_operator.gateway.knobs import Knobs, VtcKnobs
from aibrix_operator.gateway.strategies import vtc_basic
from aibrix_operator.gateway.strategies.base import Usage
from aibrix_operator.gateway.strategies.vtc_basic import Tracker, VtcBasic
from aibrix_operator.gateway.view import Model

BUCKET = 4500  # (1000 + 8000) / 2


def ask_of(user, counts=(), model=None, text="", **more):
    return make_ask(model or make_model(3), counts, request=make_request(text, user=user), **more)


@pytest.mark.acceptance("GW-50")
@pytest.mark.parametrize(("tokens", "pod"), [(0, "p0"), (BUCKET, "p1"), (2 * BUCKET, "p2"), (99 * BUCKET, "p2")])
def test_a_users_place_among_the_pods_grows_with_its_tokens(tokens, pod):
    vtc = VtcBasic()
    vtc.tracker(VtcKnobs()).add("u", tokens, NOW_S)
    shuffled = Model("m", tuple(make_endpoint(f"p{i}") for i in (2, 0, 1)))
    assert set(drawn(vtc, ask_of("u", model=shuffled), 50)) == {pod}


@pytest.mark.acceptance("GW-50")
def test_users_with_few_and_many_tokens_are_kept_apart():
    vtc = VtcBasic()
    vtc.tracker(VtcKnobs()).add("heavy", 3 * BUCKET, NOW_S)
    assert pod_of(vtc.pick(ask_of("heavy"))) == "p2"
    assert pod_of(vtc.pick(ask_of("light"))) == "p0"


@pytest.mark.acceptance("GW-50")
def test_load_counts_up_to_its_cap():
    def loads_term(count):
        return VtcBasic().scores(ask_of("u", (count, 0, 0), seed=5))[0]

    assert loads_term(100) == loads_term(300)
    assert loads_term(50) == pytest.approx(loads_term(100) - 0.5)


@pytest.mark.acceptance("GW-50")
def test_without_a_user_the_choice_is_random_and_counted():
    vtc = VtcBasic()
    assert set(drawn(vtc, ask_of(None), 60)) == {"p0", "p1", "p2"}
    assert vtc.pick(ask_of(None)).fallback == "no_user"
    assert vtc.scores(ask_of(None)) == [None] * 3


@pytest.mark.acceptance("GW-50")
@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        pytest.param(Usage(prompt=100, completion=400, total=500), 900, id="the engine said"),
        pytest.param(None, 0, id="nothing is charged"),
    ],
)
def test_the_charge_is_an_estimate_until_the_request_ends(usage, charged):
    vtc = VtcBasic()
    ask = ask_of("u", text="x" * 399)
    vtc.pick(ask)
    assert vtc.tracker(VtcKnobs()).tokens("u", NOW_S) == 0
    vtc.admitted(ask, ask.candidates[0])
    assert vtc.tracker(VtcKnobs()).tokens("u", NOW_S) == 100 + 2 * 150
    for _ in range(2):
        vtc.ended(ask.request, ask.candidates[0], usage)
        assert vtc.tracker(VtcKnobs()).tokens("u", NOW_S + 60) == charged


def test_a_profile_with_its_own_window_has_its_own_tracker():
    vtc = VtcBasic()
    short = Knobs(vtc=VtcKnobs(tracker_window_s=60))
    ask = ask_of("u", text="x" * 400, knobs=short)
    vtc.admitted(ask, ask.candidates[0])
    assert vtc.tracker(short.vtc).tokens("u", NOW_S) > 0
    assert vtc.tracker(VtcKnobs()).tokens("u", NOW_S) == 0


def test_the_window_slides():
    tracker = Tracker(300)
    tracker.add("u", 100, 1000)
    tracker.add("u", 10, 1200)
    assert tracker.tokens("u", 1299) == 110
    assert tracker.tokens("u", 1301) == 10
    tracker.correct("u", -1000, 1000)
    assert tracker.tokens("u", 1301) == 10
    tracker.correct("u", -50, 1200)
    assert tracker.tokens("u", 1301) == 0
    assert tracker.tokens("u", 9999) == 0


def test_users_that_nobody_saw_for_long_make_room(monkeypatch):
    monkeypatch.setattr(vtc_basic, "MOST_USERS", 3)
    tracker = Tracker(300)
    for user in "abcad":
        tracker.add(user, 5, 1000)
    assert [tracker.tokens(user, 1000) for user in "abcd"] == [10, 0, 5, 5]
