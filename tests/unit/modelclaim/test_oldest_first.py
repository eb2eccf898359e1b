"""Claims that come together are placed in the order of their age."""

from __future__ import annotations

import pytest
from simulated import CARD_24, simulated

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster import errors


@pytest.mark.parametrize("number", [3, 5])
@simulated
async def test_of_claims_applied_together_the_oldest_get_the_room(cluster, number):
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(12)
    for index in range(number):
        cluster.apply(f"claim-{index}", "9Gi", "1Gi")
    await cluster.run(30)
    phases = [cluster.status(f"claim-{index}").phase for index in range(number)]
    assert phases == [ClaimPhase.ACTIVE] * 2 + [ClaimPhase.PENDING] * (number - 2)


@simulated
async def test_a_claim_whose_first_writes_fail_is_not_overtaken(cluster):
    cluster.add_pod("warm-0", CARD_24)
    await cluster.run(12)
    refusals = [errors.Unavailable("HTTP 503: not now", status=503)] * 3
    cluster.store.fault = lambda verb, resource, name, body: refusals.pop() if name == "a-old" and refusals else None
    cluster.apply("a-old", "13Gi", "1Gi")
    cluster.apply("b-young", "13Gi", "1Gi")
    await cluster.run(30)
    assert cluster.status("a-old").phase is ClaimPhase.ACTIVE
    assert cluster.status("b-young").phase is ClaimPhase.PENDING
