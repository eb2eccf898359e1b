"""Edge cases of claims, Pods and strangers: who is matched with whom, what is said, and what blocks a card."""

import json

import pytest
from simulated import CARD_24, GIB, actions, limits, model, reasons, simulated, starts

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Refused, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase
from aibrix_operator.sim.world import NAMESPACE


def route(cluster, claim, pod="warm-0"):
    return json.loads(cluster.annotations(pod)[names.route_annotation(claim)])


async def serving(cluster, *claims, **pod):
    runtime = cluster.add_pod("warm-0", CARD_24, **pod)
    for claim in claims:
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(30)
    runtime.calls.clear()
    return runtime


@pytest.mark.acceptance("9.9")
@simulated
async def test_mc9_09_a_port_of_zero_is_never_routed_and_a_changed_port_is_taken_over(cluster):
    runtime = await serving(cluster, "a")
    runtime.engines[model("a")].port = 0
    await cluster.run(15)
    assert (route(cluster, "a")["state"], route(cluster, "a")["port"]) == ("activating", 0)
    runtime.engines[model("a")].port = 20_777
    await cluster.run(15)
    assert (route(cluster, "a")["state"], route(cluster, "a")["port"]) == ("active", 20_777)
    runtime.engines[model("a")].port = 20_778
    await cluster.run(15)
    assert route(cluster, "a")["port"] == cluster.status("a").instances[0].port == 20_778


@pytest.mark.acceptance("9.9")
@simulated
async def test_mc9_09_an_engine_with_another_uid_is_a_stranger_whatever_its_model_is_called(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    other = wire.ClaimRef(namespace="elsewhere", name="a", uid="uid-of-another")
    runtime.seat(wire.ActivateRequest(model_name=model("a"), artifact_url="x", claim_ref=other), 4 * GIB)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(60)
    assert runtime.calls == []
    assert cluster.condition("a", "Scheduled")[2].endswith(
        "warm-0 could not be judged: the engine serving model-of-a there answers to no claim"
    )


@pytest.mark.acceptance("9.11")
@simulated
async def test_mc9_11_a_card_that_could_hold_it_later_is_named_before_one_that_never_could(cluster):
    cluster.add_pod("roomy", 1000)
    cluster.seat("grown", "roomy", 300, 100, limit_bytes=600, mapped_bytes=600)
    cluster.add_pod("full", 1000)
    cluster.seat("big", "full", 400, 350, limit_bytes=600, mapped_bytes=350)
    await cluster.run(1)
    cluster.apply("a", "300", "100")
    await cluster.run(1)
    message = cluster.condition("a", "Scheduled")[2]
    assert "roomy has 0.0 GiB free, with the rest held by the engines already on it" in message
    assert message.endswith("; 1 other pod(s) were turned away as well")


@pytest.mark.acceptance("9.12")
@simulated
async def test_mc9_12_the_same_refusal_is_one_event_and_turns_to_placed_when_room_appears(cluster):
    await serving(cluster, "a", "b")
    cluster.apply("c", "12Gi", "1Gi")
    await cluster.run(180)
    assert reasons(cluster, "c") == ["NoMatchingPods"]
    cluster.delete_claim("b")
    await cluster.run(30)
    assert cluster.condition("c", "Scheduled") == ("True", "Placed", "placed on pod warm-0")
    assert reasons(cluster, "c")[:2] == ["NoMatchingPods", "Activating"]


@pytest.mark.acceptance("9.12")
@simulated
async def test_mc9_12_a_route_that_cannot_be_written_does_not_undo_the_placement(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.store.fault = lambda verb, *rest: errors.Unavailable("not now") if verb == "annotate" else None
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    assert cluster.condition("a", "Scheduled") == ("True", "Placed", "placed on pod warm-0")
    assert starts(runtime) == [model("a")]
    cluster.store.fault = lambda *call: None
    await cluster.run(60)
    assert route(cluster, "a")["state"] == "active"


@pytest.mark.acceptance("9.13")
@simulated
async def test_mc9_13_a_running_claim_without_per_gpu_keeps_its_route_and_blocks_its_card(cluster):
    runtime = await serving(cluster, "a")
    before = cluster.annotations("warm-0")
    cluster.patch_claim("a", {"spec": {"perGPU": None}})
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(60)
    assert cluster.annotations("warm-0") == before
    assert runtime.calls == []
    assert cluster.condition("b", "Scheduled")[2].endswith(
        "warm-0 could not be judged: a runs there, and spec.perGPU is missing"
    )
    cluster.patch_claim("a", {"spec": {"perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}}})
    await cluster.run(15)
    assert cluster.status("b").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("9.14")
@pytest.mark.parametrize(
    ("phase", "hole"),
    [
        pytest.param(
            EnginePhase.STOPPING, "the engine that served stray there is still exiting", id="a leaver blocks the card"
        ),
        pytest.param(EnginePhase.FAILED, "", id="a dead one does not"),
        pytest.param(
            EnginePhase.RESTARTING, "the engine serving stray there answers to no claim", id="one coming back does"
        ),
        pytest.param(EnginePhase.ACTIVE, "the engine serving stray there answers to no claim", id="one alive does"),
    ],
)
@simulated
async def test_mc9_14_a_stranger_blocks_the_card_unless_it_failed_for_good(cluster, phase, hole):
    runtime = cluster.add_pod("warm-0", CARD_24)
    runtime.seat(wire.ActivateRequest(model_name="stray", artifact_url="x"), 4 * GIB, phase=phase, boots_until_s=1e9)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(20)
    if hole:
        assert cluster.condition("a", "Scheduled")[2].endswith(f"warm-0 could not be judged: {hole}")
        assert runtime.calls == []
    else:
        assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("9.16")
@simulated
async def test_mc9_16_an_engine_ready_before_its_phase_says_so_does_not_count_as_busiest(cluster):
    runtime = await serving(cluster, "a", "b")
    busiest, early = (runtime.engines[model(c)] for c in "ab")
    busiest.metrics_observed = early.metrics_observed = False
    early.phase, early.is_ready_early, early.boots_until_s = EnginePhase.BOOTING, True, 1e9
    await cluster.run(60)
    # a cannot be read and weighs 5, b weighs 1: 10 GiB to spare beside the floors
    assert limits(cluster, "b")[0] == 1 * GIB + 10 * GIB // 6


@pytest.mark.acceptance("9.20")
@simulated
async def test_mc9_20_a_mock_accelerator_is_no_card(cluster):
    runtime = cluster.add_pod("warm-0", 0, gpus=0)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "a") == (0,)
    assert actions(runtime) == [("activate", model("a"), 0)]


@pytest.mark.acceptance("9.20")
@simulated
async def test_mc9_20_a_pod_that_requests_no_gpus_is_judged_by_what_its_runtime_reports(cluster):
    cluster.add_pod("warm-0", CARD_24, gpus=0)
    cluster.apply("narrow", "6Gi", "1Gi")
    cluster.apply("wide", "6Gi", "1Gi", engineConfig={"args": {"--tensor-parallel-size": "2"}})
    await cluster.run(15)
    assert cluster.status("narrow").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "narrow") == (18 * GIB,)
    assert cluster.condition("wide", "Scheduled")[2].endswith("warm-0 reports 1 GPU(s), and the model runs on 2")
    assert cluster.status("wide").candidates == 1


@pytest.mark.acceptance("9.22")
@simulated
async def test_mc9_22_taking_a_route_away_takes_an_unseen_wake_request_along_and_leaves_other_keys(cluster):
    await serving(cluster, "a", "b")
    cluster.store.watch_delay_s = 3.0
    others = {k: v for k, v in cluster.annotations("warm-0").items() if not k.endswith("/a")}
    cluster.delete_claim("a")
    await cluster.run(2.9)
    wake = {names.wake_annotation("a"): "2026-10-01T08:00:00Z", "example.com/kept": "yes"}
    cluster.store.change(PODS, (NAMESPACE, "warm-0"), {"metadata": {"annotations": wake}})
    await cluster.run(0.5)
    assert cluster.annotations("warm-0") == {**others, "example.com/kept": "yes"}


@pytest.mark.acceptance("9.23")
@simulated
async def test_mc9_23_a_route_survives_odd_model_names(cluster):
    odd = 'qu"ote\\back\nline\x01\x7f{}€名'
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi", modelName=odd)
    await cluster.run(15)
    assert route(cluster, "a")["model"] == odd
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("9.28")
@simulated
async def test_mc9_28_a_claim_made_anew_under_its_name_does_not_get_the_old_engine(cluster):
    runtime = await serving(cluster, "a")
    key = (MODEL_CLAIMS.plural, NAMESPACE, "a")
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "a"), {"metadata": {"finalizers": None}})
    cluster.delete_claim("a")
    cluster.apply("a", "6Gi", "1Gi")
    uid = cluster.store.objects[key]["metadata"]["uid"]
    await cluster.run(10)
    assert cluster.status("a").instances == ()
    assert "answers to no claim" in cluster.condition("a", "Scheduled")[2]
    await cluster.run(60)
    assert actions(runtime)[:2] == [("deactivate", model("a"), 0), ("activate", model("a"), 0)]
    assert runtime.engines[model("a")].request.claim_ref.uid == uid
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("9.30")
@simulated
async def test_mc9_30_room_comes_free_only_when_the_deleted_claims_engine_has_exited(cluster):
    runtime = await serving(cluster, "a", "b", stop_s=8.0)
    cluster.apply("c", "12Gi", "1Gi")
    await cluster.run(5)
    cluster.delete_claim("b")
    await cluster.run(5 + 5)
    assert not cluster.exists("b")
    assert starts(runtime) == []
    assert (
        "still exiting" in cluster.condition("c", "Scheduled")[2]
        or "at most" in (cluster.condition("c", "Scheduled")[2])
    )
    await cluster.run(8 + 10)
    assert starts(runtime) == [model("c")]


@pytest.mark.acceptance("9.32")
@simulated
async def test_mc9_32_what_only_the_runtime_refuses_fails_the_start_and_is_tried_again_more_and_more_slowly(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    at_s = []

    async def refuse(call):
        at_s.append(round(cluster.now_s()))
        return Refused("--tensor-parallel-size is empty", 400)

    runtime.before_call = refuse
    cluster.apply("a", "6Gi", "1Gi", engineConfig={"args": {"--tensor-parallel-size": ""}})
    await cluster.run(200)
    assert at_s == [0, 10, 30, 70, 130, 190]
    assert cluster.status("a").phase == ClaimPhase.FAILED
    assert cluster.status("a").instances == ()
    assert cluster.condition("a", "Ready") == ("False", "ActivateFailed", "--tensor-parallel-size is empty")
    assert set(reasons(cluster, "a")) == {"ActivateFailed"}
    runtime.before_call = None
    await cluster.run(60)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("9.33")
@simulated
async def test_mc9_33_ports_may_have_gaps(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    runtime._ports = iter([20_003, 20_017])
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(5)
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(30)
    assert [route(cluster, c)["port"] for c in "ab"] == [20_003, 20_017]


@pytest.mark.acceptance("44")
@simulated
async def test_mc44_a_claim_whose_pod_goes_is_placed_on_its_replacement(cluster):
    await serving(cluster, "a")
    cluster.delete_pod("warm-0")
    await cluster.run(5)
    status = cluster.status("a")
    assert (status.phase, status.ready_replicas, status.instances) == (ClaimPhase.PENDING, 0, ())
    assert cluster.condition("a", "Ready")[:2] == ("False", "NotPlaced")
    replacement = cluster.add_pod("warm-1", CARD_24)
    await cluster.run(5)
    assert starts(replacement) == [model("a")]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("44")
@simulated
async def test_mc44_a_pod_that_only_loses_its_labels_keeps_its_engine(cluster):
    runtime = await serving(cluster, "a")
    cluster.label_pod("warm-0", {names.ENABLED_LABEL: None, names.POOL_LABEL: None})
    await cluster.run(60)
    assert runtime.calls == []
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    cluster.delete_claim("a")
    await cluster.run(10)
    assert actions(runtime) == [("deactivate", model("a"), 0)]


@pytest.mark.acceptance("45")
@simulated
async def test_mc45_a_restarted_controller_restarts_no_engine_and_tries_waiting_claims_at_once(cluster):
    runtime = await serving(cluster, "a", "b")
    cluster.apply("c", "12Gi", "1Gi")
    await cluster.run(100)
    records = limits(cluster, "a", "b")
    await cluster.stop_controller()
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "c"), {"spec": {"perGPU": {"maximumFootprint": "9Gi"}}})
    cluster.start_controller()
    await cluster.run(5)
    assert starts(runtime) == [model("c")]
    assert records != limits(cluster, "a", "b")
    assert cluster.status("a").phase == cluster.status("b").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("46")
@simulated
async def test_mc46_a_start_whose_answer_is_lost_is_adopted(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    runtime.after_call = lambda call: Unknown("the answer is lost") if call[0] == "activate" else None
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    assert starts(runtime) == [model("a")]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert "ActivateFailed" not in reasons(cluster, "a")


@pytest.mark.acceptance("46")
@simulated
async def test_mc46_two_refused_claims_do_not_wake_each_other(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)

    async def refuse(call):
        return Refused("no", 400) if call[0] == "activate" else None

    runtime.before_call = refuse
    cluster.apply("a", "6Gi", "1Gi")
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(15)
    assert len(starts(runtime)) <= 6
    assert cluster.status("a").phase == cluster.status("b").phase == ClaimPhase.FAILED


@simulated
async def test_a_claim_that_is_gone_before_the_watch_says_so_is_not_tried_again_and_again(cluster):
    cluster.apply("a", "6Gi", "1Gi")
    cluster.store.watch_delay_s = 20.0
    await cluster.run(1)
    assert cluster.status("a").phase == ClaimPhase.PENDING  # what we wrote, and the watch does not show yet
    cluster.add_pod("warm-0", CARD_24)
    tries = []

    def gone_by_then(verb, resource, name, body):
        if verb == "finalize":
            tries.append(name)
            if len(tries) == 1:
                cluster.store.delete(MODEL_CLAIMS, (NAMESPACE, "a"))

    cluster.store.fault = gone_by_then
    await cluster.run(25)
    assert tries == ["a"]
