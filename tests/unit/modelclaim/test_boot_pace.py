"""An engine that boots is looked at every two seconds, however long nothing about it changes."""

import json

import pytest
from simulated import CARD_24, simulated

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase

WITHIN_S = 4


@pytest.mark.parametrize("boot_s", [3.0, 4.0, 5.0, 9.0, 33.0, 47.0])
@simulated
async def test_an_engine_is_routed_within_four_seconds_of_its_health(cluster, boot_s):
    cluster.add_pod("warm-0", CARD_24, boot_s=boot_s)
    cluster.apply("a", "6Gi", "1Gi")

    await cluster.run(boot_s + WITHIN_S)

    assert cluster.status("a").phase is ClaimPhase.ACTIVE
    assert json.loads(cluster.annotations("warm-0")[names.route_annotation("a")])["port"] == 20_000
