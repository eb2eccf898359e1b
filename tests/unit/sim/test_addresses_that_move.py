"""Who calls a Pod that has left its address to another is excused until its watch has told, and no longer."""

from simulated import CARD_24, model, simulated

from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.client import base_url

WARM_0 = base_url("10.0.0.1")


@simulated
async def test_a_start_is_excused_on_a_pod_that_left_its_address_before_it_was_heard_of(cluster):
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(1)
    cluster.store.watch_delay_s = 4.0
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(2)
    cluster.delete_pod("warm-0")
    runtime = cluster.add_pod("warm-1", CARD_24, ip="10.0.0.1")
    await cluster.run(3)
    assert [call[:2] for call in runtime.calls] == [("activate", model("a"))]
    assert cluster.laws.broken == []
    cluster.store.watch_delay_s = 0.0
    await cluster.run(60)
    await cluster.runtimes.activate(WARM_0, wire.ActivateRequest(model_name="b", artifact_url="huggingface://org/b"))
    assert "law 1: b is started on warm-1, and no instance is recorded there" in cluster.laws.broken[0]
    cluster.laws.forgive()
