"""What ``explain claim`` prints, and the same as JSON."""

import dataclasses
import io
import json
from datetime import UTC, datetime

import pytest
from explain_builders import GIB, On, claim_in, fleet_of, small_fleet
from rich.console import Console
from simulated import H20, simulated

from aibrix_operator.api.modelclaim import ModelClaimStatus
from aibrix_operator.explain import claim_text, top_frame
from aibrix_operator.explain.claim_report import report, to_json


def printed(told, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(claim_text.render(told))
    return console.file.getvalue()


def flat(told, width=100):
    return " ".join(printed(told, width).split())


async def three_on_one_card(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    cluster.apply("b", "30Gi", "10Gi")
    await cluster.run(30)
    cluster.apply("c", "30Gi", "10Gi")
    await cluster.run(30)


@simulated
async def test_a_claim_that_waits_is_explained_from_top_to_bottom(cluster):
    await three_on_one_card(cluster)
    fleet = fleet_of(cluster)
    told = report(fleet, claim_in(fleet, "c"), is_reached=True)
    text = flat(told)
    refusal = cluster.condition("c", "Scheduled")[2]
    for part in (
        "ModelClaim default/c: model model-of-c, vllm on 1 GPU(s)",
        "needs 40.0 GiB on each GPU's card: footprint 30.0 GiB + KV floor 10.0 GiB",
        "phase Pending",
        f"Scheduled False NoMatchingPods: {refusal}",
        "warm-0 95.1 80.0 80.0 15.1 15.1 no lacks 24.9 GiB, with every engine at its floor",
        "a 30.0 GiB 10.0 GiB 17.5 GiB 0.0 GiB serving 0 running",
        f"Answer {refusal} Its Scheduled condition says the same.",
        "- a on warm-0: 40.0 GiB come free, no request in flight now",
    ):
        assert part in text


@simulated
async def test_a_claim_that_is_placed_says_where(cluster):
    await three_on_one_card(cluster)
    fleet = fleet_of(cluster)
    text = flat(report(fleet, claim_in(fleet, "a"), is_reached=True))
    assert "It is placed on warm-0; its engine: serving." in text
    assert "Who would have to go" not in text


@simulated
async def test_from_outside_the_cluster_it_says_so_and_shows_what_statuses_record(cluster):
    await three_on_one_card(cluster)
    fleet = fleet_of(cluster, silent={"*"})
    text = flat(report(fleet, claim_in(fleet, "c"), is_reached=False))
    assert "warm-0 ≥ 95.1 ? ? ? ? unknown its runtime cannot be reached from here" in text
    assert "No runtime can be reached from here" in text
    assert f"The operator says NoMatchingPods: {cluster.condition('c', 'Scheduled')[2]}" in text


def test_a_claim_that_fits_and_that_no_operator_has_looked_at():
    fleet = small_fleet(On("waiting", 300, 100), (1000, []))
    text = flat(report(fleet, claim_in(fleet, "waiting"), is_reached=True))
    assert "It fits: pod-0 can take it now" in text
    assert "The operator has said nothing of it yet: is it running?" in text


def test_who_leaves_already_is_only_waited_for():
    fleet = small_fleet(On("waiting", 300, 100), (1000, [On("a", 300, 100), On("b", 300, 100, is_leaving=True)]))
    text = flat(report(fleet, claim_in(fleet, "waiting"), is_reached=True))
    assert "- nobody more: wait for b, being deleted already, on pod-0" in text


def test_a_claim_that_is_being_deleted():
    fleet = small_fleet(On("waiting", 300, 100), (1000, [On("a", 300, 100, is_leaving=True)]))
    assert "it is being deleted: its engine drains" in flat(report(fleet, claim_in(fleet, "a"), is_reached=True))


def test_no_deletion_helps_on_cards_that_are_too_small():
    fleet = small_fleet(On("waiting", 30 * GIB, 10 * GIB), (24 * GIB, [On("a", GIB, GIB)]))
    text = flat(report(fleet, claim_in(fleet, "waiting"), is_reached=True))
    assert "No deletion of other claims makes it fit." in text
    assert "the card is 16.0 GiB too small" in text


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(width):
    fleet = small_fleet(On("waiting", 300, 100), (1000, [On("a-claim-with-a-name-of-many-characters", 800, 100)]))
    told = report(fleet, claim_in(fleet, "waiting"), is_reached=True)
    assert max(len(line) for line in printed(told, width).splitlines()) <= width


@simulated
async def test_json_says_the_same_in_bytes(cluster):
    await three_on_one_card(cluster)
    fleet = fleet_of(cluster)
    told = json.loads(json.dumps(to_json(report(fleet, claim_in(fleet, "c"), is_reached=True))))
    assert (told["outcome"], told["reason"], told["message"]) == (
        "waits",
        *cluster.condition("c", "Scheduled")[1:],
    )
    assert told["conditionSaysTheSame"] is True
    [card] = told["candidates"]
    assert (card["usableBytes"], card["promisedBytes"], card["roomEverBytes"]) == (H20, 80 * GIB, H20 - 80 * GIB)
    assert (card["fits"], card["engines"][0]["kvLimitBytes"]) == ("no", 18_838_800_302)
    assert [s["delete"] for s in told["suggestions"]] == [["a"], ["b"]]


HOSTILE = "[/bold] :boom: \x1b[31mred\x07"


def test_nobody_writes_control_characters_or_markup_to_the_terminal():
    fleet = small_fleet(On("waiting", 300, 100, model=HOSTILE), (1000, [On("a", 300, 100, model=HOSTILE)]))
    waiting = claim_in(fleet, "waiting")
    conditions = [{"type": "Scheduled", "status": "False", "lastTransitionTime": "", "reason": "R", "message": HOSTILE}]
    told = dataclasses.replace(waiting, status=ModelClaimStatus.model_validate({"conditions": conditions}))
    fleet = dataclasses.replace(fleet, claims=(told, *fleet.claims[1:]))
    frame = top_frame.build([fleet], "ns", datetime(2026, 1, 1, tzinfo=UTC), [HOSTILE])
    for text in (printed(report(fleet, told, is_reached=True)), _printed(frame)):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "[/bold] :boom:" in text


def _printed(frame):
    console = Console(file=io.StringIO(), width=100)
    console.print(frame)
    return console.file.getvalue()
