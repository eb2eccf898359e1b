"""A sleeper whose seat was given away, and whose engine comes back awake, is put to sleep again if it has no room."""

import pytest
from simulated import CARD_24, GIB, model, simulated
from sleepers import calls, lending, until

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.runtime_api.wire import EnginePhase


async def a_lender_and_a_guest(cluster, guest="16Gi"):
    """``lender`` sleeps on the only card, and ``guest`` has taken its place."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(lending(sleep_after_s=30))
    cluster.apply("lender", "12Gi", "1Gi")
    await until(cluster, lambda: cluster.status("lender").phase == ClaimPhase.SLEEPING, 90)
    cluster.set_policy(lending())
    cluster.apply("guest", guest, "1Gi")
    await until(cluster, lambda: cluster.status("guest").phase == ClaimPhase.ACTIVE, 20)
    return runtime


def wake_by_hand(runtime):
    """Somebody wakes the sleeper at its own API."""
    runtime.engines[model("lender")].phase = EnginePhase.ACTIVE


@simulated
async def test_a_sleeper_woken_without_room_is_put_to_sleep_again(cluster):
    runtime = await a_lender_and_a_guest(cluster)
    wake_by_hand(runtime)
    await cluster.run(25)
    assert runtime.engines[model("lender")].phase is EnginePhase.SLEEPING
    assert cluster.status("lender").phase == ClaimPhase.SLEEPING
    assert cluster.status("guest").phase == ClaimPhase.ACTIVE


@simulated
async def test_a_sleeper_woken_with_room_beside_its_neighbours_stays_awake(cluster):
    runtime = await a_lender_and_a_guest(cluster, guest="6Gi")
    asleep_before = len(calls(runtime, "sleep"))
    wake_by_hand(runtime)
    await cluster.run(60)
    assert cluster.status("lender").phase == ClaimPhase.ACTIVE
    assert len(calls(runtime, "sleep")) == asleep_before


@pytest.mark.parametrize("state", [{"running": 1}, {"metrics_observed": False}], ids=["busy", "unreadable"])
@simulated
async def test_one_that_answers_a_request_is_not_put_to_sleep(cluster, state):
    runtime = await a_lender_and_a_guest(cluster)
    for field, value in state.items():
        setattr(runtime.engines[model("lender")], field, value)
    wake_by_hand(runtime)
    await cluster.run(25)
    assert runtime.engines[model("lender")].phase is EnginePhase.ACTIVE
    assert cluster.status("guest").instances[0].kv_limit_bytes <= CARD_24 - 16 * GIB
