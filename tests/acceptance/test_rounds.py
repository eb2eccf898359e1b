"""The ten-second round: when a card is divided again, and when it is left alone."""

import asyncio

import pytest
from simulated import CARD_24, GIB, MIB, limits, model, reasons, simulated, writes
from sleepers import route, until

from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import NotSent, Refused

ROUNDS_12_S = 120


async def two_at_rest(cluster, **runtime_fields):
    """Two engines that share an 80 GiB card evenly, 20 GiB each, with nothing left to write."""
    runtime = cluster.add_pod("warm-0", 80 * GIB, **runtime_fields)
    for claim in "ab":
        cluster.apply(claim, "20Gi", "4Gi")
    await cluster.run(30)
    assert limits(cluster, "a", "b") == (20 * GIB, 20 * GIB)
    runtime.calls.clear()
    return runtime


@pytest.mark.acceptance("15")
@simulated
async def test_mc15_an_engine_raised_past_its_record_is_brought_back_and_serves(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    for claim in "ab":
        cluster.apply(claim, "6Gi", "1Gi")
    await cluster.run(30)
    request = wire.KVLimitRequest(model_name=model("a"), limit_bytes=7 * GIB, operation_id="by hand")
    assert [runtime.set_kv_limit(request).answer.applied for _ in range(2)] == [True, False]
    await cluster.run(60)
    assert runtime.engines[model("a")].limit_bytes == 6 * GIB
    assert limits(cluster, "a", "b") == (6 * GIB, 6 * GIB)
    assert '"state":"active"' in cluster.annotations("warm-0")["route.claim.model.aibrix.ai/a"]
    not_held = (
        "KVLimitNotHeld",
        (
            "model model-of-a on pod warm-0 is held to more KV than its limit of 6.0 GiB; "
            "marked non-routable until the limit is written again"
        ),
    )
    written = ("KVLimitSet", "model model-of-a on pod warm-0: KV limit of 6.0 GiB written over 7.0 GiB")
    events = cluster.events(claim="a")
    if not_held in events:
        assert written in events[events.index(not_held) :]
        assert states_of_route(cluster, "a")[-2:] == ["activating", "active"]


def states_of_route(cluster, claim):
    key = f"route.claim.model.aibrix.ai/{claim}"
    values = [
        body["metadata"]["annotations"].get(key) for verb, _, _, body in cluster.store.writes if verb == "annotate"
    ]
    return [v.partition('"state":"')[2].partition('"')[0] for v in values if v]


@pytest.mark.acceptance("24")
@simulated
async def test_mc24_nothing_is_written_while_nobody_is_short(cluster):
    runtime = await two_at_rest(cluster)
    runtime.engines[model("a")].running = 4
    await cluster.run(ROUNDS_12_S)
    assert writes(runtime) == []


@pytest.mark.acceptance("24")
@simulated
async def test_mc24_an_engine_that_stays_short_is_given_more_once_and_not_every_round(cluster):
    runtime = await two_at_rest(cluster)
    busy = runtime.engines[model("a")]
    busy.running, busy.waiting = 3, 1
    await cluster.run(ROUNDS_12_S)
    more, less = 32_928_082_603, 10_021_590_357
    # a: 4 GiB + 5/6 of 32 GiB, b: 4 GiB + 1/6 of it, and the odd byte for the first name
    assert writes(runtime) == [(model("b"), less), (model("a"), more)]
    assert limits(cluster, "a", "b") == (more, less)
    assert "KVLimitSet" not in reasons(cluster, "a")[3:]


@pytest.mark.acceptance("24")
@simulated
async def test_mc24_a_burst_of_one_round_moves_nothing(cluster):
    runtime = await two_at_rest(cluster)
    busy = runtime.engines[model("a")]
    for _ in range(6):
        busy.running, busy.waiting = 3, 1
        await cluster.run(9)
        busy.running = busy.waiting = 0
        await cluster.run(21)
    assert writes(runtime) == []


@pytest.mark.acceptance("24")
@simulated
async def test_mc24_a_card_at_rest_gives_back_what_one_engine_was_cut_to_less_than_half_of(cluster):
    runtime = await two_at_rest(cluster)
    busy = runtime.engines[model("a")]
    busy.running, busy.waiting, busy.mapped_bytes = 3, 1, 18 * GIB
    await cluster.run(30)
    busy.mapped_bytes = 30 * GIB
    await cluster.run(30)
    assert limits(cluster, "b")[0] < 10 * GIB
    runtime.calls.clear()
    busy.running = busy.waiting = busy.mapped_bytes = 0
    await cluster.run(30)
    assert limits(cluster, "a", "b") == (20 * GIB, 20 * GIB)
    assert writes(runtime) == [(model("a"), 20 * GIB), (model("b"), 20 * GIB)]


@pytest.mark.acceptance("24")
@simulated
async def test_mc24_a_drift_below_the_threshold_is_left_alone(cluster):
    runtime = await two_at_rest(cluster)
    runtime.engines[model("a")].limit_bytes -= 800 * MIB  # a hundredth of the card is 819.2 MiB
    await cluster.run(ROUNDS_12_S)
    assert writes(runtime) == []
    runtime.engines[model("a")].limit_bytes -= 100 * MIB
    await cluster.run(30)
    assert writes(runtime) == [(model("a"), 20 * GIB)]


@pytest.mark.acceptance("25")
@simulated
async def test_mc25_a_survivor_gets_the_room_once_the_leaver_has_exited_and_not_before(cluster):
    runtime = await two_at_rest(cluster)
    runtime.stop_s = 22.0
    cluster.delete_claim("b")
    await cluster.run(5 + 20)
    assert not cluster.exists("b")
    assert runtime.engines[model("b")].phase == wire.EnginePhase.STOPPING
    assert writes(runtime) == []
    await cluster.run(2 + 2)
    assert writes(runtime) == [(model("a"), 60 * GIB)]
    assert limits(cluster, "a") == (60 * GIB,)
    assert cluster.events(claim="a")[-1] == (
        "KVLimitSet",
        (
            "model model-of-a on pod warm-0: KV limit set to 60.0 GiB, from 20.0 GiB, "
            "dividing the card between 1 engine(s)"
        ),
    )


@pytest.mark.acceptance("25")
@simulated
async def test_mc25_an_engine_that_exits_at_once_leaves_its_room_on_the_next_pass(cluster):
    runtime = await two_at_rest(cluster)
    cluster.delete_claim("b")
    await cluster.run(5 + 1 + 0.5)
    assert writes(runtime) == [(model("a"), 60 * GIB)]


def failures(cluster, claim):
    return [message for _, message in cluster.events("KVLimitFailed", claim)]


def stuck(cluster):
    runtime = cluster.add_pod("warm-0", 1000 * GIB, ignores_limits=True)
    cluster.seat("a", "warm-0", 200 * GIB, 100 * GIB, limit_bytes=400 * GIB, mapped_bytes=100 * GIB)
    cluster.seat("b", "warm-0", 200 * GIB, 100 * GIB, limit_bytes=100 * GIB, mapped_bytes=100 * GIB, running=4)
    return runtime


@pytest.mark.acceptance("26")
@simulated
async def test_mc26_the_third_failed_division_in_a_row_is_told_to_every_claim_and_then_every_thirtieth(cluster):
    stuck(cluster)
    await cluster.run(15)
    assert failures(cluster, "a") == failures(cluster, "b") == []
    await cluster.run(10)
    for claim in "ab":
        assert failures(cluster, claim) == [
            (
                f"model model-of-{claim} on pod warm-0: its card could not be divided 3 times in a row, and is tried "
                "again "
                "every 10 s: model-of-a did not take a KV limit of 166.7 GiB"
            )
        ]
    await cluster.run(290)
    assert len(failures(cluster, "a")) == 1
    await cluster.run(15)
    assert len(failures(cluster, "a")) == len(failures(cluster, "b")) == 2
    assert "could not be divided 33 times in a row" in failures(cluster, "b")[1]


@pytest.mark.acceptance("26")
@simulated
async def test_mc26_a_round_in_which_the_runtime_is_left_alone_neither_ends_nor_adds_to_the_run(cluster):
    runtime = stuck(cluster)
    await cluster.run(15)  # two failures

    async def left_alone():
        return NotSent("it did not answer in time recently; not calling it again yet", left_alone=True)

    runtime.before_snapshot = left_alone
    await cluster.run(40)
    assert failures(cluster, "a") == []
    runtime.before_snapshot = None
    await cluster.run(12)
    assert len(failures(cluster, "a")) == 1
    assert "3 times in a row" in failures(cluster, "a")[0]


@simulated
async def test_a_burst_that_one_reading_shows_is_not_judged_twice_because_the_next_reading_is_slow(cluster):
    runtime = await two_at_rest(cluster, has_feed=False)
    engine = runtime.engines[model("a")]
    engine.mapped_bytes, engine.running = 15 * GIB, 1
    await until(cluster, lambda: any(c.short for c in cluster.world.memory["default"].cards.values()), 40)
    engine.mapped_bytes = engine.running = 0

    async def slow():
        await asyncio.sleep(4)

    runtime.before_snapshot = slow
    await cluster.run(40)
    assert writes(runtime) == []


@simulated
async def test_a_record_that_another_hand_raised_far_above_the_card_reaches_no_engine(cluster):
    runtime = await two_at_rest(cluster)
    forge_record(cluster, "a", 1 << 40)
    runtime.crash(model("a"), 2.0)
    await cluster.run(30)
    assert limits(cluster, "a", "b") == (20 * GIB, 20 * GIB)
    assert cluster.status("a").phase == "Active"
    assert {limit for _, limit in writes(runtime)} == {20 * GIB}
    message = (
        "model model-of-a on pod warm-0: a KV limit of 1024.0 GiB is recorded, which is more than its card can hold "
        "beside its neighbours; it is set to 20.0 GiB"
    )
    assert ("KVLimitFailed", message) in cluster.events(claim="a")


@simulated
async def test_a_record_that_another_hand_raised_is_put_right_while_its_engine_serves(cluster):
    runtime = await two_at_rest(cluster)
    forge_record(cluster, "a", 1 << 40)
    await cluster.run(15)
    assert (limits(cluster, "a", "b"), writes(runtime)) == ((20 * GIB, 20 * GIB), [])
    assert cluster.status("a").phase == "Active"


@simulated
async def test_a_record_that_another_hand_raised_is_put_right_by_a_runtime_that_takes_no_limits(cluster):
    """The loads want another division by now, and nothing of it can be done."""
    runtime = await two_at_rest(cluster)
    runtime.engines[model("b")].mapped_bytes, runtime.engines[model("b")].running = 15 * GIB, 1
    runtime.before_call = refuse
    await cluster.run(30)
    forge_record(cluster, "a", 1 << 40)
    await cluster.run(2)
    assert (limits(cluster, "a", "b"), cluster.status("a").phase) == ((20 * GIB, 20 * GIB), "Active")
    assert len([m for r, m in cluster.events(claim="a") if r == "KVLimitFailed" and "it is set to 20.0 GiB" in m]) == 1


@simulated
async def test_a_forged_record_of_an_engine_that_boots_falls_to_what_its_neighbours_leave(cluster):
    runtime = await two_at_rest(cluster)
    runtime.engines[model("b")].mapped_bytes, runtime.engines[model("b")].running = 15 * GIB, 1
    runtime.crash(model("a"), 60.0)
    await cluster.run(5)
    runtime.before_call = refuse
    forge_record(cluster, "a", 1 << 40)
    await cluster.run(2)
    assert limits(cluster, "a", "b") == (20 * GIB, 20 * GIB)


@simulated
async def test_a_forged_record_that_falls_below_its_engines_limit_takes_the_route_along(cluster):
    """The engine came back with the whole card as its limit, and its runtime takes no other for now."""
    runtime = cluster.add_pod("warm-0", 80 * GIB)
    runtime.before_call = refuse
    cluster.seat("a", "warm-0", 20 * GIB, 4 * GIB, limit_bytes=80 * GIB, record_bytes=1 << 40)
    cluster.seat("b", "warm-0", 20 * GIB, 4 * GIB, limit_bytes=20 * GIB)
    await cluster.run(2)
    published = [s[3]["status"] for s in cluster.store.writes if s[0] == "status" and s[2] == "a"]
    records = [(s["phase"], s["instances"][0]["kvLimitBytes"]) for s in published]
    assert records == [("Active", 1 << 40), ("Activating", 20 * GIB)]
    assert route(cluster, "warm-0", "a")[0] == "activating"
    runtime.before_call = None
    await cluster.run(30)
    assert cluster.status("a").phase == "Active"


@simulated
async def test_a_limit_is_not_sent_late_because_a_neighbours_is_answered_late(cluster):
    """By then its claim may want more KV than it is cut to."""
    runtime = await two_at_rest(cluster)

    async def slow(call):
        await asyncio.sleep(5)

    runtime.before_call = slow
    cluster.apply("c", "10Gi", "4Gi")
    await until(cluster, lambda: writes(runtime), 5)
    cluster.apply("b", "20Gi", "18Gi")
    await cluster.run(60)
    assert writes(runtime)[:2] == [(model("a"), 10 * GIB), (model("b"), 10 * GIB)]
    assert [cluster.status(c).phase for c in "abc"] == ["Active"] * 3


async def refuse(call):
    await asyncio.sleep(0)
    return Refused("not now", 409)


def forge_record(cluster, claim, limit_bytes):
    """Another hand writes a KV limit into the claim's record."""
    instance = cluster.status(claim).instances[0].model_copy(update={"kv_limit_bytes": limit_bytes})
    cluster.patch_claim(claim, {"status": {"instances": [instance.model_dump(mode="json", by_alias=True)]}})
