"""A sleeper whose seat was lent gets it back before it wakes."""

import pytest
from simulated import CARD_24, GIB, limits, model, reasons, simulated
from sleepers import (
    asked,
    calls,
    lending,
    one_asleep,
    restart,
    seat_asleep,
    until,
)

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.sim.world import NAMESPACE


async def lent(cluster, **runtime):
    """A serving lender that holds what a sleeper lent it."""
    pod = cluster.add_pod("warm-0", 1000, **runtime)
    cluster.set_policy(lending())
    lender = cluster.seat("lender", "warm-0", 300, 100, limit_bytes=600, mapped_bytes=150)
    seat_asleep(cluster, "waker", "warm-0", 300, 100, limit_bytes=20, asleep_bytes=60, mapped_bytes=20)
    await cluster.run(2)
    assert pod.calls == []
    return pod, lender


@pytest.mark.acceptance("34")
@simulated
async def test_mc34_what_was_lent_is_taken_back_before_the_sleeper_wakes(cluster):
    runtime, lender = await lent(cluster)
    waker, records = runtime.engines[model("waker")], []

    async def look(call):
        records.append((call[:3], limits(cluster, "lender", "waker")))

    runtime.before_call = look
    cluster.request_wake("warm-0", "waker")
    await cluster.run(5)
    assert records[:3] == [
        (("kv-limit", model("lender"), 300), (600, 20)),
        (("kv-limit", model("waker"), 100), (300, 100)),
        (("wake", model("waker"), 0), (300, 100)),
    ]
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE
    assert limits(cluster, "lender", "waker") == (225, 175) == (lender.limit_bytes, waker.limit_bytes)
    assert "WaitingForRoom" not in reasons(cluster, "waker")


@pytest.mark.acceptance("34")
@simulated
async def test_mc34_a_lender_that_takes_no_limit_keeps_the_sleeper_asleep_and_its_request_standing(cluster):
    runtime, lender = await lent(cluster)
    runtime.ignores_limits = True
    cluster.request_wake("warm-0", "waker")
    await cluster.run(40)
    assert calls(runtime, "wake") == []
    assert asked(cluster, "warm-0", "waker")
    assert cluster.status("waker").phase == ClaimPhase.SLEEPING
    assert lender.limit_bytes == 600
    runtime.ignores_limits = False
    await cluster.run(20)
    assert cluster.status("waker").phase == ClaimPhase.ACTIVE


@pytest.mark.acceptance("34")
@simulated
async def test_mc34_a_restart_between_the_writes_takes_them_up_again(cluster):
    runtime, _ = await lent(cluster)
    cluster.request_wake("warm-0", "waker")
    await until(cluster, lambda: bool(runtime.calls), 5)
    await restart(cluster)
    await until(cluster, lambda: cluster.status("waker").phase is ClaimPhase.ACTIVE, 25)
    assert len({c[3] for c in runtime.calls if c[0] == "wake"}) == 1
    assert limits(cluster, "lender", "waker")[0] <= 300


@pytest.mark.acceptance("34")
@simulated
async def test_mc34_a_lent_seat_whose_sleeper_is_woken_past_the_operator_is_not_routed_before_its_card_is_divided(
    cluster,
):
    runtime = await one_asleep(cluster, lending())
    assert limits(cluster, "a") == (0,)
    engine = runtime.engines[model("a")]
    seen = []
    cluster.store.lost = lambda verb, resource, name, body: (
        seen.append((engine.limit_bytes, limits(cluster, "a")[0]))
        if verb == "annotate"
        and '"state":"active"' in str(body["metadata"]["annotations"].get(names.route_annotation("a")))
        else None
    )
    runtime.wake(model("a"))
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert seen == [(6 * GIB, 6 * GIB)]


@simulated
async def test_a_request_taken_back_before_the_call_wakes_nobody(cluster):
    runtime, _ = await lent(cluster)
    runtime.ignores_limits = True
    cluster.request_wake("warm-0", "waker")
    await cluster.run(5)
    annotations = {names.wake_annotation("waker"): None}
    cluster.store.change(PODS, (NAMESPACE, "warm-0"), {"metadata": {"annotations": annotations}})
    runtime.ignores_limits = False
    await cluster.run(60)
    assert calls(runtime, "wake") == []
    assert cluster.status("waker").phase == ClaimPhase.SLEEPING


@pytest.mark.parametrize(
    ("in_force", "record", "wakes"),
    [
        pytest.param(GIB, GIB, 1, id="both show its seat"),
        pytest.param(0, 1 << 40, 0, id="another hand wrote the record"),
        pytest.param(GIB, 1, 0, id="its record shows a seat that was lent"),
        pytest.param(-1, GIB, 1, id="no limit can be read"),
    ],
)
@simulated
async def test_on_a_card_that_cannot_be_judged_a_sleeper_wakes_whose_record_and_limit_show_its_seat(
    cluster, in_force, record, wakes
):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.seat("b", "warm-0", 6 * GIB, GIB, limit_bytes=10 * GIB)
    seat_asleep(cluster, "a", "warm-0", 6 * GIB, GIB, limit_bytes=in_force, asleep_bytes=GIB)
    runtime.usable_bytes = (-CARD_24,)
    await cluster.run(3)
    instance = cluster.status("a").instances[0].model_copy(update={"kv_limit_bytes": record})
    written = {"status": {"instances": [instance.model_dump(mode="json", by_alias=True)]}}
    cluster.store.change(MODEL_CLAIMS, (NAMESPACE, "a"), written)
    cluster.request_wake("warm-0", "a")
    await cluster.run(20)
    assert len(calls(runtime, "wake")) == wakes
