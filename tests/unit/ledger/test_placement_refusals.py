"""What a claim is told when no Pod takes it: the refusal that helps most, with figures that agree with the account."""

import itertools
import re

import pytest
from hypothesis import given
from ledger_builders import GIB, asleep, candidate_lists, card, seats, serving

from aibrix_operator.ledger.card import Seat
from aibrix_operator.ledger.figures import gib
from aibrix_operator.ledger.placement import Candidate, Obstacle, ObstacleKind, Refused, place

SEAT = Seat(30 * GIB, 10 * GIB)
NEEDS_40 = "no warm pod can hold this model, which needs 40.0 GiB on a card: "


def on(name, usable_gib, *on_it, reserved_gib=0, obstacle=None):
    return Candidate(name, card(usable_gib * GIB, *on_it, reserved=reserved_gib * GIB, pod=name), obstacle)


def blocked(name, kind, text, usable_gib=None):
    return Candidate(name, None if usable_gib is None else card(usable_gib * GIB, pod=name), Obstacle(kind, text))


def resident(claim, footprint_gib, floor_gib, mapped_gib=0):
    return serving(claim, footprint_gib * GIB, floor_gib * GIB, mapped=mapped_gib * GIB)


NEVER_15 = on("never-15", 80, resident("a", 50, 15))
LATER_20 = on("later-20", 80, resident("a", 30, 10, mapped_gib=30))
LATER_30 = on("later-30", 80, resident("a", 30, 10, mapped_gib=20))
UNDIVIDABLE = on("undividable", 80, obstacle=Obstacle(ObstacleKind.UNDIVIDABLE, "a did not take a KV limit of 9.0 GiB"))
LEFT_ALONE = blocked(
    "left-alone", ObstacleKind.LEFT_ALONE, "p did not answer in time recently; not calling it again yet"
)
HOLE = blocked("hole", ObstacleKind.HOLE, "its runtime did not answer")
TOPOLOGY = Candidate("double", None, Obstacle.topology(2, 1))

NEVER_15_TEXT = (
    "never-15 can offer at most 15.0 GiB, even with every engine on it at its floor "
    "(the card holds 80.0 GiB, and 65.0 GiB of it is promised to 1 instance(s))"
)
LATER_20_TEXT = (
    "later-20 has 20.0 GiB free, with the rest held by the engines already on it "
    "(the card holds 80.0 GiB, and 60.0 GiB of it is held by 1 instance(s))"
)


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        pytest.param(NEVER_15, NEVER_15_TEXT, id="never"),
        pytest.param(LATER_20, LATER_20_TEXT, id="later"),
        pytest.param(
            UNDIVIDABLE,
            "undividable has room, but its card could not be divided: a did not take a KV limit of 9.0 GiB",
            id="undividable",
        ),
        pytest.param(
            LEFT_ALONE,
            "left-alone cannot be asked to start m yet: p did not answer in time recently; not calling it again yet",
            id="left alone",
        ),
        pytest.param(HOLE, "hole could not be judged: its runtime did not answer", id="a hole"),
        pytest.param(TOPOLOGY, "double reports 2 GPU(s), and the model runs on 1", id="topology"),
        pytest.param(
            on("reserving", 80, resident("a", 20, 10), reserved_gib=12),
            "reserving can offer at most 38.0 GiB, even with every engine on it at its floor (the card holds 80.0 GiB, "
            "and 30.0 GiB of it is promised to 1 instance(s); "
            "12.0 GiB more is held for another model that room is being made for)",
            id="room held for another model",
        ),
        pytest.param(
            on("reserving", 80, resident("a", 20, 10, mapped_gib=15), reserved_gib=8),
            "reserving has 37.0 GiB free, with the rest held by the engines already on it (the card holds 80.0 GiB, "
            "and 35.0 GiB of it is held by 1 instance(s); "
            "8.0 GiB more is held for another model that room is being made for)",
            id="room held for another model, and KV by the engines",
        ),
        pytest.param(
            on("overdrawn", 41, resident("a", 30, 10), resident("b", 30, 10)),
            "overdrawn can offer at most 0.0 GiB, even with every engine on it at its floor "
            "(the card holds 41.0 GiB, and 80.0 GiB of it is promised to 2 instance(s))",
            id="overdrawn",
        ),
        pytest.param(
            on("full", 80, resident("a", 50, 15), obstacle=Obstacle(ObstacleKind.UNDIVIDABLE, "whatever")),
            "full can offer at most 15.0 GiB, even with every engine on it at its floor "
            "(the card holds 80.0 GiB, and 65.0 GiB of it is promised to 1 instance(s))",
            id="a card without room never says that it has room",
        ),
    ],
)
def test_a_single_pod_says_why(candidate, text):
    assert place("m", SEAT, [candidate]) == Refused("NoMatchingPods", NEEDS_40 + text)


def test_the_third_claim_of_an_h20_can_be_offered_what_two_floors_leave():
    h20 = Candidate(
        "h20",
        card(102_102_110_044, *(serving(c, 30 * GIB, 10 * GIB) for c in ("model-a", "model-b")), pod="h20"),
    )
    refused = place("model-c", SEAT, [h20])
    assert refused.message == (
        NEEDS_40 + "h20 can offer at most 15.1 GiB, even with every engine on it at its floor "
        "(the card holds 95.1 GiB, and 80.0 GiB of it is promised to 2 instance(s))"
    )


def test_a_claim_that_misses_a_gib_is_told_both_figures():
    small = on("pool", 24, *(resident(c, 6, 1) for c in ("qwen25-0-5b", "qwen3-0-6b")))
    refused = place("m", Seat(10 * GIB, 1 * GIB), [small])
    assert refused.reason == "NoMatchingPods"
    assert "needs 11.0 GiB on a card: pool can offer at most 10.0 GiB" in refused.message


# Best first: each is named before everything below it.
BEST_FIRST = [UNDIVIDABLE, LATER_30, LATER_20, LEFT_ALONE, NEVER_15, HOLE, TOPOLOGY]


@pytest.mark.parametrize(
    ("better", "worse"),
    [pytest.param(b, w, id=f"{b.pod} before {w.pod}") for b, w in itertools.combinations(BEST_FIRST, 2)],
)
def test_the_refusal_that_helps_most_is_named(better, worse):
    for both in ([better, worse], [worse, better]):
        message = place("m", SEAT, both).message
        assert message.startswith(NEEDS_40 + better.pod)
        assert message.endswith("; 1 other pod(s) were turned away as well")


def test_a_later_pod_is_named_before_a_never_pod_with_more_room():
    never_39 = on("never-39", 80, resident("a", 31, 10))
    assert place("m", SEAT, [never_39, LATER_20]).message.startswith(NEEDS_40 + LATER_20_TEXT)


def test_equal_refusals_name_the_lowest_pod():
    pods = [on(name, 80, resident("a", 50, 15)) for name in ("pod-c", "pod-a", "pod-b")]
    message = place("m", SEAT, pods).message
    assert message.startswith(NEEDS_40 + "pod-a can offer")
    assert message.endswith("; 2 other pod(s) were turned away as well")


def test_without_a_candidate_nothing_is_said_about_memory():
    assert place("m", SEAT, []) == Refused("NoMatchingPods", "no available candidate warm pod for model")


def test_a_claim_larger_than_every_card_is_told_the_largest():
    pods = [on("small", 24), on("larger", 39, resident("a", 30, 10)), on("smaller", 8, asleep("b", GIB, GIB))]
    assert place("m", SEAT, pods) == Refused(
        "TooLargeForAnyCard",
        "no candidate pod can hold this model, which needs 40.0 GiB on a card; "
        "the best of them offers 39.0 GiB on a card",
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(on("large", 40, resident("a", 1, 1)), id="a card as large as the seat"),
        pytest.param(HOLE, id="a card that was not measured"),
        pytest.param(TOPOLOGY, id="a card of another topology"),
        pytest.param(LEFT_ALONE, id="a runtime that is left alone"),
    ],
)
def test_one_pod_that_might_hold_the_model_makes_it_no_longer_too_large(other):
    assert place("m", SEAT, [on("small", 24), other]).reason == "NoMatchingPods"


@given(candidate_lists(unit=GIB // 7), seats(unit=GIB // 7))
def test_the_figures_of_a_refusal_agree_with_the_account(candidates, seat):
    refused = place("m", seat, candidates)
    if not isinstance(refused, Refused) or not candidates:
        return
    assert f"needs {gib(seat.total_bytes)} on a card" in refused.message
    if refused.reason == "TooLargeForAnyCard":
        assert all(c.card is not None and c.card.usable_bytes < seat.total_bytes for c in candidates)
        return
    named = re.search(r"on a card: (\S+)", refused.message)
    assert named is not None
    account = next(c.card for c in candidates if c.pod == named[1])
    if "can offer at most" in refused.message:
        assert account is not None
        assert account.room_ever_bytes < seat.total_bytes
        assert f"at most {gib(account.room_ever_bytes)}," in refused.message
        assert f"{gib(account.promised_bytes)} of it is promised to {len(account.occupants)}" in refused.message
    elif "free, with the rest held" in refused.message:
        assert account is not None
        assert account.room_now_bytes < seat.total_bytes <= account.room_ever_bytes
        assert f"has {gib(account.room_now_bytes)} free" in refused.message
    elif "has room" in refused.message:
        assert account is None or account.fits(seat)
    if account is not None and account.reserved_bytes and "the card holds" in refused.message:
        assert f"; {gib(account.reserved_bytes)} more is held for another model" in refused.message
