"""What cannot work is refused at once: by the API server where a rule can tell, else by a condition that says why."""

from __future__ import annotations

import pytest

from e2e.api import Refused, eventually
from e2e.gateway import Gateway
from e2e.pool import CARD, GIB, LARGE_CARD, QWEN3, SAMPLES, Pool, conditions, message, phase, reason, record

NAME_63 = "n" * 63
BAD_FIGURES = {
    "no-figures": (None, None, "no-figures is not placed: spec.perGPU is missing"),
    "zero": ("0", "1Gi", "spec.perGPU.maximumFootprint is 0, which is not positive"),
    "negative": ("1Gi", "-1Gi", "spec.perGPU.kvFloor is -1Gi, which is not positive"),
    "huge": ("2Pi", "1Gi", "spec.perGPU.maximumFootprint is 2Pi, which is more than 1Pi"),
    "milli": ("30m", "1Gi", "spec.perGPU.maximumFootprint is 30m, which is not a whole number of bytes"),
}
"""Claim → footprint, floor, and what its condition says."""
BAD_ARGS = {
    "utilization": ({"--gpu-memory-utilization": "0.45"}, "--gpu-memory-utilization"),
    "bad-tp": ({"--tensor-parallel-size": "invalid"}, "--tensor-parallel-size"),
    "two-dp": ({"--data-parallel-size": "2"}, "--data-parallel-size"),
}
"""Claim → engine arguments, and which of them is at fault."""
UNPLACED = {
    **dict.fromkeys(BAD_FIGURES, "InvalidPerGPU"),
    "two-gpus": "NoMatchingPods",
    "too-large": "TooLargeForAnyCard",
}


@pytest.fixture(scope="module")
def refused(pool_a: Pool):
    """Given: both samples Active, and beside them every claim of this file that cannot be served."""
    pool_a.apply_samples()
    for name, (footprint, floor, _) in BAD_FIGURES.items():
        pool_a.apply(name, footprint=footprint, floor=floor)
    for name, (args, _) in BAD_ARGS.items():
        pool_a.apply(name, engineConfig={"args": args})
    pool_a.apply("two-gpus", engineConfig={"args": {"--tensor-parallel-size": "2"}})
    pool_a.apply("too-large", footprint=str(2 * CARD))
    pool_a.wait_active(*SAMPLES)
    yield pool_a
    pool_a.clean_up(*UNPLACED, *BAD_ARGS)


@pytest.mark.acceptance("5")
@pytest.mark.parametrize("replicas", [0, 2])
def test_mc05_v1_only_one_replica_is_accepted(pool_a: Pool, replicas):
    with pytest.raises(Refused, match=r"spec\.replicas"):
        pool_a.apply("replicas", replicas=replicas)


@pytest.mark.acceptance("6")
def test_mc06_v2_a_name_of_64_characters_is_refused_and_one_of_63_is_served(empty_pool: Pool):
    with pytest.raises(Refused, match="at most 63 characters"):
        empty_pool.apply(NAME_63 + "n")

    empty_pool.apply(NAME_63)

    empty_pool.wait_active(NAME_63)
    assert empty_pool.pod.chat(empty_pool.route(NAME_63)["port"], NAME_63).status == 200


@pytest.mark.acceptance("7")
@pytest.mark.parametrize("name", BAD_ARGS)
def test_mc07_v3_engine_arguments_that_cannot_work_fail_the_claim_without_a_start(
    refused: Pool, gateway: Gateway, name
):
    failed = refused.wait(name, "is Failed", lambda c: reason(c, "Ready") == "InvalidEngineConfig")

    assert phase(failed) == "Failed"
    assert message(failed, "Ready").startswith("invalid engineConfig parallelism: ")
    assert BAD_ARGS[name][1] in message(failed, "Ready")
    assert "instances" not in failed["status"]
    eventually("an Event says so", lambda: refused.told(name, "InvalidEngineConfig") == 1)
    assert refused.told(name, "Activating") == 0
    assert name not in refused.pod.engines()
    told = (503, None, f"model {name} is failed (InvalidEngineConfig)")
    eventually("the gateway says so", lambda: gateway.chat(name).told == told)


@pytest.mark.acceptance("8")
@pytest.mark.parametrize("name", BAD_FIGURES)
def test_mc08_v4_unusable_figures_are_named_once_however_many_passes(refused: Pool, name):
    """That no snapshot is read for it is a matter of upstream's passes: here readers read on their own."""
    unplaced = refused.wait_unplaced(name, "InvalidPerGPU")
    assert phase(unplaced) == "Pending"
    assert BAD_FIGURES[name][2] in message(unplaced, "Scheduled")
    assert message(unplaced, "Scheduled").startswith(f"{name} is not placed: ")
    assert "Ready" not in conditions(unplaced)
    eventually("an Event says so", lambda: refused.told(name, "InvalidPerGPU"))

    _have_passes(refused)

    assert refused.told(name, "InvalidPerGPU") == 1
    assert refused.claim(name)["metadata"]["resourceVersion"] == unplaced["metadata"]["resourceVersion"]


def _have_passes(pool: Pool) -> None:
    """Three passes at least: each is proved by a claim that only a pass says something about."""
    for number in range(3):
        pool.apply(f"passing-{number}", footprint="0")
        pool.wait_unplaced(f"passing-{number}", "InvalidPerGPU")
        pool.delete(f"passing-{number}")


@pytest.mark.acceptance("8")
def test_mc08_v4_a_corrected_claim_is_placed_and_started_once(empty_pool: Pool):
    made = empty_pool.apply("corrected", footprint=None)
    empty_pool.wait_unplaced("corrected", "InvalidPerGPU")

    empty_pool.change("corrected", {"perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}})

    empty_pool.wait_active("corrected")
    placed = empty_pool.claim("corrected")
    assert placed["metadata"]["uid"] == made["metadata"]["uid"]
    assert reason(placed, "Scheduled") == "Placed"
    eventually("its start was told", lambda: empty_pool.told("corrected", "Activated"))
    assert empty_pool.told("corrected", "Activating") == 1
    assert empty_pool.pod.engines()["corrected"]["restart_count"] == 0


@pytest.mark.acceptance("8")
def test_mc08_v4_a_fraction_of_a_byte_rounds_up(empty_pool: Pool):
    empty_pool.apply("fraction", footprint="5.6Gi")
    empty_pool.wait_active("fraction")
    rounded_up = -(-56 * GIB // 10)
    assert record(empty_pool.claim("fraction")) == CARD - rounded_up


@pytest.mark.acceptance("9")
def test_mc09_v5_two_gpus_are_not_looked_for_on_a_pool_of_single_ones(refused: Pool):
    unplaced = refused.wait_unplaced("two-gpus", "NoMatchingPods")
    assert unplaced["status"]["candidates"] == 0
    assert message(unplaced, "Scheduled") == "no available candidate warm pod for model"


@pytest.mark.acceptance("10")
def test_mc10_v6_what_is_too_large_for_any_card_is_placed_at_once_when_a_larger_one_joins(new_pool, gateway: Gateway):
    pool = new_pool("growing")
    pool.apply("for-a-large-card", footprint=str(2 * CARD))
    unplaced = pool.wait_unplaced("for-a-large-card", "TooLargeForAnyCard")
    assert phase(unplaced) == "Pending"
    assert "the best of them offers 24.0 GiB on a card" in message(unplaced, "Scheduled")

    told = (503, None, "model for-a-large-card is pending (TooLargeForAnyCard)")
    eventually("the gateway says so", lambda: gateway.chat("for-a-large-card").told == told)

    large = pool.join(LARGE_CARD)

    pool.wait("for-a-large-card", "is placed", lambda c: reason(c, "Scheduled") == "Placed", 10.0)
    pool.wait_active("for-a-large-card")
    assert pool.claim("for-a-large-card")["status"]["instances"][0]["pod"] == large.name


@pytest.mark.acceptance("11")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("artifactURL", "huggingface://another/model"),
        ("modelName", "another"),
        ("podSelector", {"matchLabels": {"claim.model.aibrix.ai/pool": "another"}}),
        ("engine", "sglang"),
        ("engineConfig", {"args": {"--max-model-len": "4096"}}),
        pytest.param("engineConfig", None, id="engineConfig-removed"),
    ],
)
def test_mc11_v7_what_an_engine_was_started_with_cannot_change(samples: Pool, field, value):
    with pytest.raises(Refused, match=f"{field} is immutable"):
        samples.change(QWEN3, {field: value})


@pytest.mark.acceptance("11")
def test_mc11_v7_figures_may_change_and_divide_the_card_anew(samples: Pool):
    uid = samples.claim(QWEN3)["metadata"]["uid"]
    samples.change(QWEN3, {"perGPU": {"maximumFootprint": "7Gi", "kvFloor": "1Gi"}})
    # 24 GiB less 7 and 6 of footprints and 1 and 1 of floors leave 9, half of it for each.
    samples.wait(QWEN3, "has its new share", lambda c: record(c) == 1 * GIB + 9 * GIB // 2)
    samples.change(QWEN3, {"perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}})
    restored = samples.wait(QWEN3, "has its old share", lambda c: record(c) == 6 * GIB)
    assert restored["metadata"]["uid"] == uid
    assert phase(restored) == "Active"


@pytest.mark.acceptance("12")
def test_mc12_v_nothing_of_what_was_refused_reaches_the_card(refused: Pool):
    for name, why in UNPLACED.items():
        assert phase(refused.wait_unplaced(name, why)) == "Pending"
    for name in BAD_ARGS:
        refused.wait(name, "is Failed", lambda c: phase(c) == "Failed")
    assert refused.pod.engines().keys() == set(SAMPLES.values())
    assert all(refused.route(name) == {} for name in (*UNPLACED, *BAD_ARGS))
