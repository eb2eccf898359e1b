"""Edge cases of KV limits: only what is read back counts, and the record decides."""

import pytest
from simulated import CARD_24, GIB, MIB, limits, model, reasons, simulated, starts, writes

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.runtime_api.outcome import NotSent, Unknown
from aibrix_operator.runtime_api.wire import EnginePhase


def route(cluster, claim, pod="warm-0"):
    return cluster.annotations(pod).get(names.route_annotation(claim), "")


async def serving(cluster, *claims, **pod):
    runtime = cluster.add_pod("warm-0", CARD_24, **pod)
    for claim in claims:
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(40)
    for claim in claims:
        assert cluster.status(claim).phase == ClaimPhase.ACTIVE
    runtime.calls.clear()
    return runtime


@pytest.mark.acceptance("9.1")
@simulated
async def test_mc9_01_a_limit_answered_as_written_counts_only_when_it_is_read_back(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, ignores_limits=True)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(60)
    assert writes(runtime)
    assert cluster.status("a").phase == ClaimPhase.ACTIVATING
    assert '"port":0' in route(cluster, "a")
    runtime.ignores_limits = False
    await cluster.run(20)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert runtime.engines[model("a")].limit_bytes == 18 * GIB


@pytest.mark.acceptance("9.2")
@simulated
async def test_mc9_02_a_restarted_engine_gets_the_same_limit_again_under_another_operation_id(cluster):
    runtime = await serving(cluster, "a")
    for _ in range(2):
        runtime.crash(model("a"), back_after_s=2.0)
        await cluster.run(30)
        assert cluster.status("a").phase == ClaimPhase.ACTIVE
        assert runtime.engines[model("a")].limit_bytes == limits(cluster, "a")[0] == 18 * GIB
    operations = [operation for _, _, _, operation in runtime.calls]
    assert len(operations) == len(set(operations)) >= 2


@pytest.mark.acceptance("9.3")
@simulated
async def test_mc9_03_a_second_claim_is_refused_while_the_first_still_loads(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24, boot_s=60.0)
    cluster.store.watch_delay_s = 3.0
    await cluster.run(5)
    cluster.apply("first", "14Gi", "1Gi")
    cluster.apply("second", "14Gi", "1Gi")
    await cluster.run(30)
    assert starts(runtime) == [model("first")]
    assert cluster.condition("second", "Scheduled")[:2] == ("False", "NoMatchingPods")
    assert "15.0 GiB of it is promised to 1 instance(s)" in cluster.condition("second", "Scheduled")[2]


@pytest.mark.acceptance("9.4")
@simulated
async def test_mc9_04_an_engine_just_grown_is_not_pulled_back_by_a_watch_that_lags(cluster):
    runtime = await serving(cluster, "a", "b")
    cluster.store.watch_delay_s = 5.0
    cluster.delete_claim("b")
    await cluster.run(60)
    assert limits(cluster, "a") == (18 * GIB,)
    assert writes(runtime) == [(model("a"), 18 * GIB)]
    assert "KVLimitNotHeld" not in reasons(cluster, "a")


@pytest.mark.acceptance("9.5")
@simulated
async def test_mc9_05_records_that_go_down_are_written_first_whatever_limits_are_in_force(cluster):
    cluster.add_pod("warm-0", 1000 * GIB)
    gib = {"limit_bytes": 300 * GIB, "record_bytes": 600 * GIB}
    cluster.seat("a", "warm-0", 100 * GIB, 50 * GIB, **gib)
    cluster.seat("b", "warm-0", 100 * GIB, 50 * GIB, limit_bytes=100 * GIB)
    await cluster.run(1)
    records = [
        (name, body["status"]["instances"][0]["kvLimitBytes"] // GIB)
        for verb, _, name, body in cluster.store.writes
        if verb == "status"
    ]
    assert records.index(("a", 400)) < records.index(("b", 400))
    assert limits(cluster, "a", "b") == (400 * GIB, 400 * GIB)


@pytest.mark.acceptance("9.6")
@pytest.mark.parametrize(
    ("record", "back"),
    [pytest.param(700, 600, id="not past what it had"), pytest.param(0, 600, id="no record: to what it had")],
)
@simulated
async def test_mc9_06_a_shrink_that_did_not_take_is_taken_back(cluster, record, back):
    runtime = cluster.add_pod("warm-0", 1000, ignores_limits=True)
    cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=600, record_bytes=record, mapped_bytes=100)
    cluster.apply("newcomer", "300", "100")
    await cluster.run(0.5)
    if record:
        assert [limit for _, limit in writes(runtime)][:2] == [200, back]
    else:
        assert back in [limit for _, limit in writes(runtime)]
    assert starts(runtime) == []


@pytest.mark.acceptance("9.6")
@simulated
async def test_mc9_06_a_reading_that_fails_confirms_nothing(cluster):
    runtime = cluster.add_pod("warm-0", 1000)
    cluster.seat("neighbour", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=100)
    await cluster.run(1)

    async def silent():
        return Unknown("cut off")

    def fall_silent(call):
        runtime.before_snapshot = silent

    runtime.after_call = fall_silent
    cluster.apply("newcomer", "300", "100")
    await cluster.run(15)
    assert writes(runtime) == [(model("neighbour"), 200)]
    assert limits(cluster, "neighbour") == (600,)
    assert cluster.status("newcomer").instances == ()
    assert "could not be judged: its runtime did not answer" in cluster.condition("newcomer", "Scheduled")[2]
    runtime.before_snapshot = runtime.after_call = None
    await cluster.run(60)
    assert cluster.status("newcomer").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "neighbour", "newcomer") == (200, 200)


@pytest.mark.acceptance("9.7")
@simulated
async def test_mc9_07_an_engine_below_its_record_keeps_its_route_and_is_raised_before_it_is_routed_anew(cluster):
    runtime = await serving(cluster, "a")
    engine = runtime.engines[model("a")]
    engine.limit_bytes = 18 * GIB - 100 * MIB
    await cluster.run(60)
    assert writes(runtime) == []
    assert '"state":"active"' in route(cluster, "a")
    runtime.crash(model("a"), back_after_s=2.0)
    while engine.phase is not EnginePhase.BOOTING:
        await cluster.run(0.1)
    engine.limit_bytes = 17 * GIB + 900 * MIB
    await cluster.run(30)
    assert writes(runtime)[-1] == (model("a"), 18 * GIB)
    assert engine.limit_bytes == 18 * GIB
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("9.7")
@simulated
async def test_mc9_07_an_engine_above_its_record_leaves_the_route_before_its_limit_is_written(cluster):
    runtime = await serving(cluster, "a")
    seen = []

    async def look(call):
        seen.append((call[2], '"state":"active"' in route(cluster, "a")))

    runtime.before_call = look
    runtime.engines[model("a")].limit_bytes = 20 * GIB
    await cluster.run(30)
    assert seen == [(18 * GIB, False)]
    told = [reason for reason in reasons(cluster, "a") if reason.startswith("KVLimit")]
    assert told[-2:] == ["KVLimitNotHeld", "KVLimitSet"]
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("9.8")
@simulated
async def test_mc9_08_a_ready_engine_without_a_readable_segment_is_neither_routed_nor_written_to(cluster):
    runtime = await serving(cluster, "a")
    runtime.engines[model("a")].limit_bytes = -1
    await cluster.run(60)
    assert '"state":"activating"' in route(cluster, "a")
    assert writes(runtime) == []
    runtime.engines[model("a")].limit_bytes = 18 * GIB
    await cluster.run(15)
    assert '"state":"active"' in route(cluster, "a")


@pytest.mark.acceptance("9.8")
@simulated
async def test_mc9_08_an_engine_on_a_pod_without_cards_has_no_record_and_no_gate(cluster):
    runtime = cluster.add_pod("warm-0")
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "a") == (0,)
    assert writes(runtime) == []


@pytest.mark.acceptance("9.31")
@simulated
async def test_mc9_31_the_stale_segment_of_a_killed_engine_routes_nothing(cluster):
    runtime = await serving(cluster, "a", boot_s=6.0)
    runtime.crash(model("a"), back_after_s=8.0)
    for _ in range(13):
        await cluster.run(1)
        assert runtime.engines[model("a")].limit_bytes in (18 * GIB, CARD_24)
    for _ in range(4):
        if '"state":"active"' in route(cluster, "a"):
            assert runtime.engines[model("a")].limit_bytes == 18 * GIB
        await cluster.run(1)
    assert '"state":"active"' in route(cluster, "a")
    assert runtime.engines[model("a")].restart_count == 1


@pytest.mark.acceptance("48")
@simulated
async def test_mc48_cards_that_blink_leave_limits_routes_and_records_alone(cluster):
    runtime = await serving(cluster, "a")
    before = cluster.annotations("warm-0")
    runtime.usable_bytes = ()
    await cluster.run(30)
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(5)
    assert cluster.annotations("warm-0") == before
    assert limits(cluster, "a") == (18 * GIB,)
    assert cluster.status("b").instances == ()
    assert "its cards could not be measured" in cluster.condition("b", "Scheduled")[2]
    runtime.usable_bytes = (CARD_24,)
    await cluster.run(30)
    assert cluster.status("b").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("47")
@simulated
async def test_mc47_a_runtime_that_is_left_alone_is_passed_over_at_once(cluster):
    silent = cluster.add_pod("warm-0", CARD_24, cached_artifacts=("huggingface://org/a",))

    async def left_alone(call=None):
        silent.before_snapshot = left_alone
        return NotSent("it did not answer in time recently; not calling it again yet", left_alone=True)

    silent.before_call = left_alone
    other = cluster.add_pod("warm-1", CARD_24)
    await cluster.run(1)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(0.5)
    assert starts(other) == [model("a")]
    assert cluster.condition("a", "Scheduled") == ("True", "Placed", "placed on pod warm-1")
    assert "ActivateFailed" not in reasons(cluster, "a")
