"""What ``explain`` computes for a claim that waits is its condition, to the letter."""

import random

import pytest
from explain_builders import GIB, claim_in, fleet_of
from simulated import CARD_24, H20, model, simulated

from aibrix_operator.explain.claim_report import Fit, Outcome, report


def explain(cluster, name, **look):
    fleet = fleet_of(cluster, **look)
    return report(fleet, claim_in(fleet, name), is_reached=not look)


def assert_equal_to_condition(cluster, name):
    told = explain(cluster, name)
    status, reason, message = cluster.condition(name, "Scheduled")
    assert (status, reason, message) == ("False", told.reason, told.message)
    assert told.outcome is Outcome.WAITS
    assert told.is_as_published
    return told


@simulated
async def test_a_card_that_is_promised_away(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    cluster.apply("b", "30Gi", "10Gi")
    await cluster.run(30)
    cluster.apply("c", "30Gi", "10Gi")
    await cluster.run(30)
    told = assert_equal_to_condition(cluster, "c")
    assert "can offer at most 15.1 GiB" in told.message
    [row] = told.candidates
    assert (row.fit, row.why_not) == (Fit.NO, "lacks 24.9 GiB, with every engine at its floor")
    assert [(s.pod, s.claims) for s in told.suggestions] == [("warm-0", ("a",)), ("warm-0", ("b",))]


@simulated
async def test_a_card_whose_engines_hold_kv_now(cluster):
    cluster.add_pod("warm-0", 80 * GIB)
    cluster.seat("a", "warm-0", 30 * GIB, 10 * GIB, limit_bytes=50 * GIB, mapped_bytes=30 * GIB, running=3)
    await cluster.run(1)
    cluster.apply("b", "30Gi", "10Gi")
    await cluster.run(30)
    told = assert_equal_to_condition(cluster, "b")
    assert [(row.fit, row.why_not) for row in told.candidates] == [
        (Fit.LATER, "lacks 20.0 GiB until engines give KV back")
    ]
    assert [(s.claims, s.freed_bytes, s.requests) for s in told.suggestions] == [(("a",), 60 * GIB, 3)]


@simulated
async def test_cards_that_are_too_small_and_no_deletion_that_helps(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.add_pod("warm-1", CARD_24)
    cluster.apply("small", "6Gi", "1Gi")
    await cluster.run(30)
    cluster.apply("huge", "30Gi", "10Gi")
    await cluster.run(30)
    told = assert_equal_to_condition(cluster, "huge")
    assert told.reason == "TooLargeForAnyCard"
    assert told.suggestions == ()
    assert {row.why_not for row in told.candidates} == {"the card is 16.0 GiB too small"}


@simulated
async def test_no_pod_at_all(cluster):
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    told = assert_equal_to_condition(cluster, "a")
    assert told.candidates == ()


@simulated
async def test_a_pod_that_reports_another_number_of_gpus(cluster):
    cluster.add_pod("warm-0", CARD_24, CARD_24, gpus=0)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    told = assert_equal_to_condition(cluster, "a")
    assert told.candidates[0].why_not == "warm-0 reports 2 GPU(s), and the model runs on 1"


@simulated
async def test_a_card_with_an_engine_that_answers_to_no_claim(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.seat("a", "warm-0", 6 * GIB, 1 * GIB, limit_bytes=18 * GIB)
    runtime.engines[model("a")].request = runtime.engines[model("a")].request.model_copy(update={"claim_ref": None})
    runtime.engines[model("a")].model = "stranger"
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(30)
    told = assert_equal_to_condition(cluster, "b")
    assert "the engine serving stranger there answers to no claim" in told.message
    assert told.suggestions == ()


@simulated
async def test_a_runtime_that_does_not_answer_beside_one_that_does(cluster):
    silent = cluster.add_pod("warm-0", CARD_24)
    silent.before_snapshot = _no_answer
    cluster.add_pod("warm-1", CARD_24)
    cluster.apply("a", "16Gi", "4Gi")
    await cluster.run(30)
    cluster.apply("b", "16Gi", "4Gi")
    await cluster.run(30)
    fleet = fleet_of(cluster, silent={"warm-0"})
    told = report(fleet, claim_in(fleet, "b"), is_reached=True)
    assert told.is_as_published, told.message
    rows = {row.card.pod: row.why_not for row in told.candidates}
    assert rows["warm-0"] == "warm-0 could not be judged: its runtime did not answer"


async def _no_answer():
    from aibrix_operator.runtime_api.outcome import NotSent

    return NotSent("cannot connect")


@simulated
async def test_a_model_of_the_same_name_is_in_the_way_until_its_claim_goes(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "6Gi", "1Gi", modelName="one-name")
    await cluster.run(30)
    cluster.apply("b", "6Gi", "1Gi", modelName="one-name")
    await cluster.run(30)
    told = assert_equal_to_condition(cluster, "b")
    assert "it serves a model of that name for claim a" in told.message
    assert [s.claims for s in told.suggestions] == [("a",)]


@simulated
async def test_a_failed_division_is_only_in_the_condition_and_is_shown_beside(cluster):
    cluster.add_pod("warm-0", 1000, ignores_limits=True)
    cluster.seat("a", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=100)
    await cluster.run(1)
    cluster.apply("b", "300", "100")
    await cluster.run(0.5)
    told = explain(cluster, "b")
    assert told.outcome is Outcome.FITS
    assert "could not be divided" in told.condition.message


@simulated
async def test_without_any_runtime_only_statuses_speak(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    cluster.apply("b", "30Gi", "10Gi")
    await cluster.run(30)
    cluster.apply("c", "30Gi", "10Gi")
    await cluster.run(30)
    told = explain(cluster, "c", silent={"*"})
    assert told.outcome is Outcome.UNKNOWN
    assert told.is_from_condition
    assert told.is_as_published
    [row] = told.candidates
    assert row.fit is Fit.UNKNOWN
    assert (row.card.usable_bytes, row.card.recorded_bytes) == (None, H20)
    assert [(e.claim, e.state) for e in row.card.engines] == [("a", "serving"), ("b", "serving")]


@simulated
async def test_a_placed_claim_says_where_it_is(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    await cluster.run(30)
    told = explain(cluster, "a")
    assert (told.outcome, told.where, told.message) == (Outcome.PLACED, "warm-0", "")


@pytest.mark.parametrize(
    ("figures", "spec", "message"),
    [
        pytest.param((None, None), {}, "model-of-a is not placed: spec.perGPU is missing", id="no seat"),
        pytest.param(
            ("6Gi", "1Gi"),
            {"engineConfig": {"args": {"--gpu-memory-utilization": "0.9"}}},
            "invalid engineConfig parallelism: --gpu-memory-utilization is not supported: "
            "the operator divides a card's memory itself",
            id="arguments",
        ),
    ],
)
@simulated
async def test_a_declaration_that_cannot_work(cluster, figures, spec, message):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", *figures, **spec)
    await cluster.run(30)
    told = explain(cluster, "a")
    assert (told.outcome, told.message) == (Outcome.INVALID, message)
    assert message in [c.message for c in cluster.status("a").conditions]


@simulated
async def test_older_claims_that_wait_too_are_named(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("z-first", "30Gi", "1Gi")
    await cluster.run(5)
    cluster.apply("a-second", "30Gi", "2Gi")
    await cluster.run(30)
    assert explain(cluster, "a-second").older_waiting == ("z-first",)
    assert explain(cluster, "z-first").older_waiting == ()


@pytest.mark.parametrize("seed", range(4))
@simulated
async def test_any_refusal_of_a_settled_cluster_is_computed_to_the_letter(cluster, seed):
    rng = random.Random(seed)
    for number in range(rng.randint(1, 4)):
        cluster.add_pod(f"warm-{number}", rng.choice((CARD_24, H20, 80 * GIB)))
    names = [f"claim-{number:02}" for number in range(12)]
    for name in names:
        cluster.apply(name, f"{rng.randint(3, 40)}Gi", f"{rng.randint(1, 12)}Gi")
        await cluster.run(2)
    await cluster.run(90)
    waiting = [name for name in names if not cluster.status(name).instances]
    assert waiting
    for name in waiting:
        told = assert_equal_to_condition(cluster, name)
        for suggestion in told.suggestions:
            assert set(suggestion.claims) <= set(names) - set(waiting)
