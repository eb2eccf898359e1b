"""A runtime that is left alone for starts only, while its snapshots are read."""

from __future__ import annotations

import asyncio

from simulated import CARD_24, simulated

from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.runtime_api.outcome import NotSent


@simulated
async def test_a_start_that_cannot_be_sent_is_not_tried_more_often_than_every_round(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)

    async def leave_alone(call):
        return NotSent("it did not answer in time recently; not calling it again yet", left_alone=True)

    runtime.before_call = leave_alone
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(60)
    assert 2 <= sum(call[0] == "activate" for call in runtime.calls) <= 7
    status, reason, message = cluster.condition("a", "Scheduled")
    assert (status, reason) == ("False", "NoMatchingPods")
    assert "cannot be asked to start model-of-a yet: it did not answer in time recently" in message
    assert cluster.events("ActivateFailed") == []
    runtime.before_call = None
    await cluster.run(70)
    assert cluster.status("a").phase is ClaimPhase.ACTIVE


@simulated
async def test_a_card_whose_call_stays_unanswered_is_named_to_those_that_want_it(cluster):
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    answer = asyncio.Event()

    async def say_nothing(call):
        await answer.wait()

    runtime.before_call = say_nothing
    cluster.apply("b", "6Gi", "1Gi")
    await cluster.run(5)
    cluster.apply("late", "6Gi", "1Gi")
    await cluster.run(5)
    status, reason, message = cluster.condition("late", "Scheduled")
    assert (status, reason) == ("False", "NoMatchingPods")
    assert "warm-0" in message
    assert "its runtime has not answered the last call yet" in message
    runtime.before_call = None
    answer.set()
    await cluster.run(70)
    assert cluster.status("late").phase is ClaimPhase.ACTIVE
