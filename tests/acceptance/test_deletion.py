"""A deleted claim leaves nothing behind, and no request in flight is cut before its time."""

import pytest
from simulated import CARD_24, actions, model, reasons, simulated

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase


async def one_serving(cluster, **runtime):
    pod = cluster.add_pod("warm-0", CARD_24, **runtime)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    pod.calls.clear()
    return pod


@pytest.mark.acceptance("49")
@simulated
async def test_mc49_deleting_both_leaves_no_claim_no_route_and_no_engine(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(30)
    for claim in "ab":
        cluster.delete_claim(claim)
    await cluster.run(60)
    assert not cluster.exists("a")
    assert not cluster.exists("b")
    assert cluster.annotations("warm-0") == {}
    assert runtime.engines == {}


@pytest.mark.acceptance("50")
@simulated
async def test_mc50_the_route_goes_first_and_the_engine_only_when_its_request_is_answered(cluster):
    runtime = await one_serving(cluster)
    runtime.engines[model("a")].running = 1
    cluster.delete_claim("a")
    await cluster.run(0.5)
    assert names.route_annotation("a") not in cluster.annotations("warm-0")
    await cluster.run(60)
    assert runtime.calls == []
    assert cluster.exists("a")
    runtime.engines[model("a")].running = 0
    await cluster.run(3)
    assert actions(runtime) == [("deactivate", model("a"), 0)]
    assert not cluster.exists("a")
    assert "DrainTimedOut" not in reasons(cluster, "a")


@pytest.mark.acceptance("50")
@simulated
async def test_mc50_a_request_that_never_ends_is_cut_90_s_after_the_deletion_with_a_warning(cluster):
    runtime = await one_serving(cluster)
    runtime.engines[model("a")].running = 1
    cluster.delete_claim("a")
    await cluster.run(89)
    assert runtime.calls == []
    await cluster.run(3)
    assert actions(runtime) == [("deactivate", model("a"), 0)]
    assert not cluster.exists("a")
    assert cluster.events("DrainTimedOut") == [
        ("DrainTimedOut", "model model-of-a on pod warm-0 was stopped with requests left, 90 s after its deletion")
    ]


@pytest.mark.acceptance("50")
@simulated
async def test_mc50_a_serving_engine_without_requests_runs_on_for_five_seconds(cluster):
    runtime = await one_serving(cluster)
    cluster.delete_claim("a")
    await cluster.run(4.9)
    assert runtime.calls == []
    await cluster.run(1.2)
    assert actions(runtime) == [("deactivate", model("a"), 0)]


@pytest.mark.acceptance("50")
@simulated
async def test_mc50_a_sleeping_engine_stops_at_once(cluster):
    runtime = await one_serving(cluster)
    runtime.sleep(model("a"))
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.SLEEPING
    cluster.delete_claim("a")
    await cluster.run(0.5)
    assert actions(runtime)[-1] == ("deactivate", model("a"), 0)
    assert not cluster.exists("a")


@pytest.mark.acceptance("50")
@simulated
async def test_mc50_a_starting_engine_stops_at_once(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, boot_s=120.0)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    cluster.delete_claim("a")
    await cluster.run(0.5)
    assert actions(runtime)[-1] == ("deactivate", model("a"), 0)
    assert not cluster.exists("a")


@pytest.mark.acceptance("50")
@simulated
async def test_mc50_an_engine_that_failed_for_good_stops_at_once(cluster):
    runtime = await one_serving(cluster)
    runtime.fail(model("a"))
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.FAILED
    cluster.delete_claim("a")
    await cluster.run(0.5)
    assert actions(runtime) == [("deactivate", model("a"), 0)]
    assert not cluster.exists("a")


@pytest.mark.acceptance("50")
@simulated
async def test_mc50_an_engine_whose_requests_cannot_be_read_counts_as_busy_until_the_90_s(cluster):
    runtime = await one_serving(cluster)
    runtime.engines[model("a")].metrics_observed = False
    cluster.delete_claim("a")
    await cluster.run(88)
    assert runtime.calls == []
    await cluster.run(4)
    assert not cluster.exists("a")


@pytest.mark.acceptance("49")
@simulated
async def test_mc49_a_claim_whose_pod_is_gone_has_nothing_to_stop(cluster):
    await one_serving(cluster)
    cluster.delete_pod("warm-0")
    cluster.delete_claim("a")
    await cluster.run(1)
    assert not cluster.exists("a")


@pytest.mark.parametrize("clock_off_s", [600.0, -600.0])
@simulated
async def test_a_drain_lasts_as_long_however_wrong_the_operators_clock_is(cluster, clock_off_s):
    runtime = await one_serving(cluster)
    runtime.engines[model("a")].running = 1
    cluster.operators[0].clock_off_s = clock_off_s
    cluster.delete_claim("a")
    await cluster.run(85)
    assert runtime.calls == []
    await cluster.run(10)
    assert actions(runtime) == [("deactivate", model("a"), 0)]
