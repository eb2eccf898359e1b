"""A claim that was removed by force and made anew under its name, while its namesake's engine is still there."""

import pytest
from simulated import CARD_24, model, simulated

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sim.world import NAMESPACE


@pytest.mark.parametrize("has_failed", [False, True], ids=["serving", "failed"])
@simulated
async def test_it_is_served_once_its_namesakes_engine_is_stopped(cluster, has_failed):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    if has_failed:
        runtime.fail(model("a"))
        await cluster.run(5)
    cluster.patch_claim("a", {"metadata": {"finalizers": []}})
    cluster.delete_claim("a")
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(120)
    assert cluster.status("a").phase is ClaimPhase.ACTIVE
    obj = cluster.store.objects[MODEL_CLAIMS.plural, NAMESPACE, "a"]
    assert runtime.engines[model("a")].request.claim_ref.uid == obj["metadata"]["uid"]
    assert names.route_annotation("a") in cluster.annotations("warm-0")
