"""What a browser is sent of a look."""

import orjson
from builders import NOW, make_claim, make_fleet
from page_stage import SCOPE, played

from aibrix_operator.explain.looking import Look
from aibrix_operator.page import frame


def test_every_card_and_every_claim_is_in_the_frame_with_what_it_comes_to():
    seen = frame.build(played(), SCOPE)
    assert [card["pod"] for card in seen["cards"]] == [
        "warm-pool-7c9d5f-0",
        "warm-pool-7c9d5f-1",
        "warm-pool-7c9d5f-2",
        "warm-pool-7c9d5f-small",
    ]
    assert {c["name"]: c["reason"] for c in seen["claims"]} == {
        "deepseek-r1": "TooLargeForAnyCard",
        "embed-small": "EngineSleeping",
        "gemma-4b": "ModelClaimActive",
        "llama-8b": "ModelClaimActive",
        "mistral-24b": "NoMatchingPods",
        "phi-4": "ModelClaimActive",
        "qwen3-32b": "ModelClaimActive",
        "qwen3-8b": "ModelClaimActive",
        "typo": "InvalidPerGPU",
    }
    totals = seen["totals"]
    assert (totals["cards"], totals["engines"], totals["serving"], totals["asleep"]) == (4, 6, 5, 1)
    assert (totals["claims"], totals["waiting"], totals["failed"], totals["unreadableCards"]) == (9, 3, 0, 0)
    assert totals["promisedBytes"] == sum(card["promisedBytes"] for card in seen["cards"])


def test_equal_looks_give_equal_frames():
    look = played()
    assert orjson.dumps(frame.build(look, SCOPE)) == orjson.dumps(frame.build(look, SCOPE))


def test_a_claim_that_nobody_has_looked_at_is_new_and_says_nothing():
    fleet = make_fleet(make_claim("a"))
    [claim] = frame.build(Look((fleet,)), SCOPE)["claims"]
    assert (claim["phase"], claim["reason"], claim["message"], claim["since"]) == ("New", "", "", "")


def test_a_claim_that_is_being_deleted_is_no_waiting_one():
    fleet = make_fleet(make_claim("a", deleting_since=NOW))
    seen = frame.build(Look((fleet,)), SCOPE)
    assert (seen["claims"][0]["phase"], seen["totals"]["waiting"]) == ("Deleting", 0)


def test_what_could_not_be_looked_at_is_a_warning():
    fleet = make_fleet(make_claim("a"))
    seen = frame.build(Look((fleet,), ("default/b: spec is\x1b[31m odd",), "no policies"), SCOPE)
    assert seen["warnings"] == ["no policies", "claim default/b: spec is [31m odd"]
