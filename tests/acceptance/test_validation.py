"""What makes a claim wait or fail before any engine is asked for."""

import pytest
from pydantic import ValidationError
from simulated import CARD_24, GIB, limits, model, reasons, simulated, starts

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase, ModelClaimSpec


@pytest.mark.acceptance("5")
@pytest.mark.parametrize("replicas", [0, 2])
def test_mc05_another_number_of_replicas_than_one_is_refused(replicas):
    spec = {"podSelector": {}, "artifactURL": "huggingface://org/model"}
    assert ModelClaimSpec.model_validate(spec).replicas == 1
    with pytest.raises(ValidationError, match="replicas"):
        ModelClaimSpec.model_validate({**spec, "replicas": replicas})


@pytest.mark.acceptance("6")
@simulated
async def test_mc06_a_name_of_63_characters_is_placed_and_routed(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    name = "n" * 63
    cluster.apply(name, "6Gi", "1Gi")
    await cluster.run(15)
    assert cluster.status(name).phase == ClaimPhase.ACTIVE
    assert names.route_annotation(name) in cluster.annotations("warm-0")
    assert runtime.engines[model(name)].request.ipc_name == f"kvc_{name}"


@pytest.mark.acceptance("7")
@pytest.mark.parametrize(
    ("flag", "value", "error"),
    [
        pytest.param(
            "--gpu-memory-utilization",
            "0.45",
            "--gpu-memory-utilization is not supported: the operator divides a card's memory itself",
            id="memory share",
        ),
        pytest.param(
            "--tensor-parallel-size",
            "invalid",
            "--tensor-parallel-size must be a positive integer, and is 'invalid'",
            id="no number",
        ),
        pytest.param(
            "--data-parallel-size",
            "2",
            "--data-parallel-size=2 is unsupported by fixed topology pools",
            id="data parallel",
        ),
    ],
)
@simulated
async def test_mc07_engine_arguments_that_cannot_work_fail_the_claim_without_any_call(cluster, flag, value, error):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi", engineConfig={"args": {flag: value}})
    await cluster.run(60)
    assert cluster.status("a").phase == ClaimPhase.FAILED
    message = f"invalid engineConfig parallelism: {error}"
    assert cluster.condition("a", "Ready") == ("False", "InvalidEngineConfig", message)
    assert cluster.events(claim="a") == [("InvalidEngineConfig", message)]
    assert runtime.calls == []
    cluster.delete_claim("a")
    await cluster.run(1)
    assert not cluster.exists("a")


@pytest.mark.acceptance("8")
@pytest.mark.parametrize(
    ("footprint", "floor", "error"),
    [
        pytest.param(None, None, "spec.perGPU is missing", id="missing"),
        pytest.param("0", "1Gi", "spec.perGPU.maximumFootprint is 0, which is not positive", id="zero"),
        pytest.param("1Gi", "-1Gi", "spec.perGPU.kvFloor is -1Gi, which is not positive", id="negative"),
        pytest.param("2Pi", "1Gi", "spec.perGPU.maximumFootprint is 2Pi, which is more than 1Pi", id="too much"),
        pytest.param(
            "30m", "1Gi", "spec.perGPU.maximumFootprint is 30m, which is not a whole number of bytes", id="a slip"
        ),
    ],
)
@simulated
async def test_mc08_an_unusable_per_gpu_waits_with_one_event_until_it_is_mended(cluster, footprint, floor, error):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", footprint, floor)
    await cluster.run(120)
    assert cluster.status("a").phase == ClaimPhase.PENDING
    message = f"model-of-a is not placed: {error}"
    assert cluster.condition("a", "Scheduled") == ("False", "InvalidPerGPU", message)
    assert cluster.events(claim="a") == [("InvalidPerGPU", message)]
    assert cluster.condition("a", "Ready") == ("", "", "")
    assert runtime.calls == []
    cluster.patch_claim("a", {"spec": {"perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}}})
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert cluster.condition("a", "Scheduled")[:2] == ("True", "Placed")
    assert starts(runtime) == [model("a")]


@pytest.mark.acceptance("8")
@simulated
async def test_mc08_a_fraction_of_a_byte_rounds_up(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "5.6Gi", "1Gi")
    await cluster.run(15)
    assert limits(cluster, "a") == (CARD_24 - 6_012_954_215,)


@pytest.mark.acceptance("9")
@simulated
async def test_mc09_two_gpus_find_no_candidate_in_a_pool_of_one_gpu_each(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi", engineConfig={"args": {"--tensor-parallel-size": "2"}})
    await cluster.run(60)
    status = cluster.status("a")
    assert (status.phase, status.candidates) == (ClaimPhase.PENDING, 0)
    message = "no available candidate warm pod for model"
    assert cluster.condition("a", "Scheduled") == ("False", "NoMatchingPods", message)
    assert cluster.events(claim="a") == [("NoMatchingPods", message)]
    assert runtime.calls == []


@pytest.mark.acceptance("10")
@simulated
async def test_mc10_a_claim_too_large_for_any_card_is_placed_at_once_on_a_larger_one_that_joins(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "48Gi", "1Gi")
    await cluster.run(45)
    message = (
        "no candidate pod can hold this model, which needs 49.0 GiB on a card; "
        "the best of them offers 24.0 GiB on a card"
    )
    assert cluster.condition("a", "Scheduled") == ("False", "TooLargeForAnyCard", message)
    assert cluster.status("a").phase == ClaimPhase.PENDING
    assert reasons(cluster, "a") == ["TooLargeForAnyCard"]
    larger = cluster.add_pod("warm-1", 80 * GIB)
    await cluster.run(1)
    assert starts(larger) == [model("a")]
    assert cluster.condition("a", "Scheduled") == ("True", "Placed", "placed on pod warm-1")


@pytest.mark.acceptance("11")
@simulated
async def test_mc11_a_patched_per_gpu_is_taken_and_the_card_divided_for_it(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(30)
    cluster.patch_claim("a", {"spec": {"perGPU": {"maximumFootprint": "8Gi", "kvFloor": "3Gi"}}})
    await cluster.run(2)
    # 24 - 8 - 6 - 3 - 1 = 6 GiB to spare, three for each
    assert limits(cluster, "a", "b") == (6 * GIB, 4 * GIB)
    assert [runtime.engines[model(c)].limit_bytes for c in "ab"] == [6 * GIB, 4 * GIB]
    assert starts(runtime) == [model("a"), model("b")]


@pytest.mark.acceptance("12")
@simulated
async def test_mc12_claims_that_wait_leave_no_trace_on_the_runtime(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("qwen3-0-6b", "6Gi", "1Gi")
    cluster.apply("qwen25-0-5b", "6Gi", "1Gi")
    await cluster.run(30)
    cluster.apply("bad-args", "6Gi", "1Gi", engineConfig={"args": {"--gpu-memory-utilization": "0.45"}})
    cluster.apply("no-cost", None, None)
    cluster.apply("two-gpus", "6Gi", "1Gi", engineConfig={"args": {"--tensor-parallel-size": "2"}})
    cluster.apply("too-large", "48Gi", "1Gi")
    await cluster.run(60)
    assert sorted(runtime.engines) == sorted([model("qwen3-0-6b"), model("qwen25-0-5b")])
    phases = {c: cluster.status(c).phase for c in ("bad-args", "no-cost", "two-gpus", "too-large")}
    assert phases == {
        "bad-args": ClaimPhase.FAILED,
        "no-cost": ClaimPhase.PENDING,
        "two-gpus": ClaimPhase.PENDING,
        "too-large": ClaimPhase.PENDING,
    }
