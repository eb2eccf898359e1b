"""Clients that leave while their request waits for its limits: nothing stays taken."""

import asyncio

from gateway_asks import model, profile, view
from gateway_exchanges import DeferredLimiter, Gateway, SlowStore, status, user

CAPPED = profile(requestsInflight=1, requestsPerSecond=100)


def waiting():
    """A gateway with one slot, which a request waits for."""
    return Gateway(view(model(pods=1, config=CAPPED)), limiter=DeferredLimiter())


async def is_free(gateway):
    """Whether the slot can be had."""
    asking = gateway.asking()
    gateway.limiter.answer()
    return status(await asking) == 200


async def test_a_slot_that_was_had_can_be_had_by_nobody_else():
    gateway = waiting()
    assert await is_free(gateway)
    assert not await is_free(gateway)


async def test_who_leaves_before_the_answer_takes_nothing():
    gateway = waiting()
    asking = gateway.asking()
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.sleep(0)
    gateway.limiter.answer()
    assert await is_free(gateway)


async def test_who_leaves_as_the_answer_comes_gives_it_back():
    gateway = waiting()
    asking = gateway.asking()
    await asyncio.sleep(0)
    gateway.limiter.answer()
    asking.cancel()
    await asyncio.sleep(0)
    assert await is_free(gateway)


async def test_who_leaves_before_anybody_waits_takes_nothing():
    gateway = waiting()
    gateway.later().cancel()
    await asyncio.sleep(0)
    gateway.limiter.answer()
    assert await is_free(gateway)


async def test_who_leaves_after_the_answer_and_before_anybody_waits_gives_it_back():
    gateway = waiting()
    answer = gateway.later()
    gateway.limiter.answer()
    answer.cancel()
    await asyncio.sleep(0)
    assert await is_free(gateway)


async def test_who_leaves_while_the_user_is_looked_up_takes_nothing():
    gateway = Gateway(view(model()), store=SlowStore(user()))
    asking = gateway.asking(user="ann")
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.sleep(0)
    assert len(gateway.leases) == 0
