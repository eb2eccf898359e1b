"""What crashes, restarts, blinks or does not answer: neighbours are left alone, and everything comes back."""

import pytest
from simulated import CARD_24, GIB, actions, limits, model, reasons, simulated, starts, writes
from sleepers import hear, route, times, until, when_route_turns

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.runtime_api.outcome import NotSent, Refused, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase

LEFT_ALONE = NotSent("did not answer in time recently; not calling it again yet", left_alone=True)


async def two_samples(cluster, **runtime):
    pod = cluster.add_pod("warm-0", CARD_24, **runtime)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(25)
    assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2
    pod.calls.clear()
    return pod


@pytest.mark.acceptance("41")
@simulated
async def test_mc41_a_sidecar_that_starts_anew_over_living_engines_changes_nothing(cluster):
    runtime = await two_samples(cluster)
    writes_before = len(cluster.store.writes)
    runtime.restart_sidecar()
    await cluster.run(60)
    assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2
    assert runtime.calls == []
    assert len(cluster.store.writes) == writes_before


@pytest.mark.acceptance("42")
@simulated
async def test_mc42_a_crashed_engine_leaves_the_route_and_returns_under_its_record(cluster):
    runtime = await two_samples(cluster)
    heard = hear(cluster)
    engine = runtime.engines[model("a")]
    runtime.crash(model("a"), back_after_s=2.0)
    await cluster.run(1.5)
    assert route(cluster, "warm-0", "a") == ("activating", 0, "")
    assert route(cluster, "warm-0", "b") == ("active", 20001, "")
    assert cluster.status("a").phase == ClaimPhase.ACTIVATING
    seen = []
    when_route_turns(cluster, "active", lambda: seen.append(engine.limit_bytes))
    await cluster.run(10)
    assert seen == [6 * GIB]
    assert writes(runtime) == [(model("a"), 6 * GIB)]
    assert engine.restart_count == 1
    assert route(cluster, "warm-0", "a") == ("active", 20000, "")
    assert cluster.status("b").phase == ClaimPhase.ACTIVE
    assert [(n, r) for n, r, _ in heard if n == "a"] == [
        ("a", "Unhealthy"),
        ("a", "KVLimitSet"),
        ("a", "Activated"),
    ]
    assert times(heard, "Unhealthy", "b") == 0


@pytest.mark.acceptance("43")
@simulated
async def test_mc43_an_engine_that_crashes_again_and_again_stays_on_its_pod_until_it_fails_for_good(cluster):
    runtime = await two_samples(cluster)
    cluster.add_pod("warm-1", CARD_24)
    for back_after_s in (2.0, 4.0, 8.0, 16.0, 32.0):
        runtime.crash(model("a"), back_after_s)
        await cluster.run(back_after_s + 10)
        assert cluster.status("a").phase == ClaimPhase.ACTIVE
        assert [i.pod for i in cluster.status("a").instances] == ["warm-0"]
    assert runtime.engines[model("a")].restart_count == 5
    runtime.fail(model("a"))
    await cluster.run(10)
    assert [i.pod for i in cluster.status("a").instances] == ["warm-1"]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert "Rescheduled" in reasons(cluster, "a")


@pytest.mark.acceptance("44")
@simulated
async def test_mc44_a_claim_whose_pod_is_gone_is_pending_and_placed_on_the_replacement(cluster):
    await two_samples(cluster)
    cluster.delete_pod("warm-0")
    await cluster.run(2)
    for claim in "ab":
        assert cluster.status(claim).phase == ClaimPhase.PENDING
        assert cluster.status(claim).ready_replicas == 0
        assert cluster.condition(claim, "Ready")[:2] == ("False", "NotPlaced")
    new = cluster.add_pod("warm-1", CARD_24)
    await cluster.run(10)
    assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2
    assert starts(new) == [model("a"), model("b")]


@pytest.mark.acceptance("44")
@pytest.mark.parametrize("label", [names.ENABLED_LABEL, names.POOL_LABEL])
@simulated
async def test_mc44_a_pod_that_only_loses_a_label_changes_nothing_for_who_is_there(cluster, label):
    runtime = await two_samples(cluster)
    cluster.label_pod("warm-0", {label: None})
    await cluster.run(30)
    assert [cluster.status(c).phase for c in "ab"] == [ClaimPhase.ACTIVE] * 2
    assert runtime.calls == []
    cluster.delete_claim("a")
    await cluster.run(10)
    assert actions(runtime)[0] == ("deactivate", model("a"), 0)


@pytest.mark.acceptance("46")
@simulated
async def test_mc46_a_start_whose_answer_is_lost_stays_placed_and_its_engine_is_adopted(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    runtime.after_call = lambda call: Unknown("did not answer in time") if call[0] == "activate" else None
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    assert starts(runtime) == [model("a")]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert cluster.condition("a", "Scheduled") == ("True", "Placed", "placed on pod warm-0")
    assert "ActivateFailed" not in reasons(cluster, "a")


@pytest.mark.acceptance("46")
@simulated
async def test_mc46_a_refused_start_takes_the_record_back_and_deals_the_card_anew(cluster):
    runtime = await two_samples(cluster)
    cluster.delete_claim("b")
    await cluster.run(20)
    assert limits(cluster, "a") == (18 * GIB,)
    heard, at = hear(cluster), []

    async def refuse(call):
        if call[0] == "activate":
            at.append(cluster.condition("bad", "Scheduled")[1])
            return Refused("no such engine option", 400)
        return None

    runtime.before_call = refuse
    cluster.apply("bad", "6Gi", "1Gi")
    await cluster.run(9)
    assert len(at) == 1
    assert cluster.status("bad").instances == ()
    assert cluster.status("bad").phase == ClaimPhase.FAILED
    assert cluster.condition("bad", "Ready") == ("False", "ActivateFailed", "no such engine option")
    assert times(heard, "ActivateFailed", "bad") == 1
    assert limits(cluster, "a") == (18 * GIB,)
    assert runtime.engines[model("a")].limit_bytes == 18 * GIB
    for waited_s in (10, 20, 40, 60, 60):
        tries = len(at)
        await cluster.run(waited_s)
        assert len(at) == tries + 1
    runtime.before_call = None
    await cluster.run(75)
    assert cluster.status("bad").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("46")
@simulated
async def test_mc46_two_refused_claims_do_not_keep_waking_each_other(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)

    async def refuse(call):
        return Refused("no such engine option", 400) if call[0] == "activate" else None

    runtime.before_call = refuse
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(15)
    assert 2 <= len(starts(runtime)) <= 6


@pytest.mark.acceptance("47")
@simulated
async def test_mc47_a_runtime_that_is_left_alone_is_passed_over_for_the_next_pod(cluster):
    alone = cluster.add_pod("warm-0", CARD_24, cached_artifacts=("huggingface://org/a",))
    other = cluster.add_pod("warm-1", CARD_24)

    async def silent():
        return LEFT_ALONE

    async def left_alone(call):
        alone.before_snapshot = silent  # whoever is left alone is not read either
        return LEFT_ALONE

    alone.before_call = left_alone
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(3)
    assert starts(other) == [model("a")]
    assert cluster.condition("a", "Scheduled") == ("True", "Placed", "placed on pod warm-1")
    assert "ActivateFailed" not in reasons(cluster, "a")


@pytest.mark.acceptance("47")
@simulated
async def test_mc47_a_claim_whose_only_pod_is_left_alone_is_pending_and_says_why(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)

    async def left_alone(call=None):
        return LEFT_ALONE

    runtime.before_call = runtime.before_snapshot = left_alone
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    assert runtime.calls == []
    assert cluster.status("a").phase == ClaimPhase.PENDING
    assert cluster.condition("a", "Scheduled") == (
        "False",
        "NoMatchingPods",
        (
            "no warm pod can hold this model, which needs 7.0 GiB on a card: "
            f"warm-0 cannot be asked to start model-of-a yet: {LEFT_ALONE.message}"
        ),
    )
    assert "ActivateFailed" not in reasons(cluster, "a")
    runtime.before_call = runtime.before_snapshot = None
    await cluster.run(70)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("48")
@pytest.mark.parametrize("blink", ["no accelerators", "not measured"])
@simulated
async def test_mc48_cards_that_blink_leave_engines_routes_and_records_as_they_were(cluster, blink):
    runtime = await two_samples(cluster)
    sizes = runtime.usable_bytes
    runtime.usable_bytes = () if blink == "no accelerators" else (-CARD_24,)
    await cluster.run(12)
    cluster.apply("c", "2Gi", "1Gi")
    await cluster.run(12)
    assert cluster.status("c").instances == ()
    assert "could not be judged: its cards could not be measured" in cluster.condition("c", "Scheduled")[2]
    assert limits(cluster, "a", "b") == (6 * GIB, 6 * GIB)
    assert [route(cluster, "warm-0", c)[0] for c in "ab"] == ["active", "active"]
    assert runtime.calls == []
    runtime.usable_bytes = sizes
    await cluster.run(25)
    assert cluster.status("c").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("48")
@simulated
async def test_mc48_a_pod_that_requests_no_gpu_and_has_records_is_not_taken_for_one_without_cards(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, gpus=0)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(10)
    assert limits(cluster, "a") == (18 * GIB,)
    runtime.usable_bytes = ()
    await cluster.run(12)
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(12)
    assert cluster.status("b").instances == ()
    assert "its cards could not be measured" in cluster.condition("b", "Scheduled")[2]


@simulated
async def test_an_engine_that_dies_asleep_comes_back_under_its_record_before_it_is_routed(cluster):
    runtime = await two_samples(cluster)
    runtime.sleep(model("a"), GIB)
    await cluster.run(5)
    engine, seen = runtime.engines[model("a")], []
    when_route_turns(cluster, "active", lambda: seen.append((engine.limit_bytes, *limits(cluster, "a"))))
    runtime.crash(model("a"), back_after_s=2.0)
    await cluster.run(20)
    assert engine.phase is EnginePhase.ACTIVE
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert seen
    assert seen[0][0] == seen[0][1]


@simulated
async def test_a_runtime_that_does_not_answer_leaves_routes_as_they_are(cluster):
    runtime = await two_samples(cluster)

    async def silent():
        return Unknown("did not answer in time")

    runtime.before_snapshot = silent
    await cluster.run(60)
    assert [route(cluster, "warm-0", c)[0] for c in "ab"] == ["active", "active"]
    runtime.before_snapshot = None
    await until(cluster, lambda: cluster.status("a").phase is ClaimPhase.ACTIVE, 5)


@simulated
async def test_a_pod_that_is_gone_before_the_watch_says_so_is_not_asked_again_and_again(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, boot_s=5.0)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(3)
    cluster.store.watch_delay_s = 15.0
    asked = []
    cluster.store.sent = lambda: asked.append(cluster.now_s())
    cluster.delete_pod("warm-0")
    cluster.runtimes.by_ip["10.0.0.1"] = runtime  # its sidecar still answers
    await cluster.run(20)
    assert 2 < len(asked) < 30
