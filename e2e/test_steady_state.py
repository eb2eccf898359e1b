"""An operator whose fleet is at rest writes nothing, however long that lasts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import pytest
import uvloop

from bench.fleet import operators
from bench.fleet.stage import Stage

CLAIMS = 300
IDLE_S = float(os.environ.get("AIBRIX_STEADY_S", "60"))
"""``make steady-state`` waits for ten minutes."""
PLACED_WITHIN_S = 200.0


async def writes_of_an_idle_operator() -> tuple[Mapping[str, int], int]:
    """What the API server has answered meanwhile: kind of write → count, and the Lease's renewals apart."""
    async with Stage.open(CLAIMS) as stage:
        with operators.running(stage.plane.kubeconfig, stage.folder, "operator"):
            await stage.until_read(set())
            await stage.place(PLACED_WITHIN_S)
            await stage.settle()
            before = stage.writes()
            await asyncio.sleep(IDLE_S)
            renewals = stage.writes()["PUT leases"] - before["PUT leases"]
            return stage.writes_since(before), renewals


@pytest.mark.timeout(IDLE_S + 300)
def test_three_hundred_idle_claims_cause_no_write_but_the_leases():
    written, renewals = uvloop.run(writes_of_an_idle_operator())

    print(f"{IDLE_S:.0f} s, {CLAIMS} claims: {written or 'no write'}, {renewals} renewals of the Lease")
    assert written == {}
    assert renewals >= IDLE_S / 4, "the operator did not lead all the time"
