"""Models on several GPUs of one Pod."""

import pytest
from simulated import GIB, limits, model, simulated, starts

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase

TWO = {"args": {"--tensor-parallel-size": "2"}}


@pytest.mark.acceptance("51")
@simulated
async def test_mc51_a_model_on_two_gpus_goes_to_the_pod_that_has_two_and_is_sized_by_the_smaller(cluster):
    one = cluster.add_pod("one-gpu", 24 * GIB)
    two = cluster.add_pod("two-gpus", 24 * GIB, 20 * GIB, labels={names.POOL_LABEL: "pool-of-two"})
    selector = {"matchLabels": {names.POOL_LABEL: "pool-of-two"}}
    cluster.apply("a", "6Gi", "1Gi", engineConfig=TWO, podSelector=selector)
    await cluster.run(15)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert cluster.status("a").candidates == 1
    assert starts(one) == []
    assert starts(two) == [model("a")]
    assert limits(cluster, "a") == (14 * GIB,)


@pytest.mark.acceptance("51")
@simulated
async def test_mc51_a_selector_over_both_pools_counts_only_pods_with_as_many_gpus(cluster):
    one = cluster.add_pod("one-gpu", 24 * GIB)
    two = cluster.add_pod("two-gpus", 24 * GIB, 24 * GIB)
    cluster.apply("wide", "6Gi", "1Gi", engineConfig=TWO)
    cluster.apply("narrow", "6Gi", "1Gi")
    await cluster.run(15)
    assert (starts(one), starts(two)) == ([model("narrow")], [model("wide")])
    assert cluster.status("wide").candidates == cluster.status("narrow").candidates == 1
