"""A long disorder: clients that leave, limits that answer late, engines that come and go. In the end nothing counts."""

import asyncio
from collections import Counter
from random import Random

import pytest
from gateway_asks import chat, endpoint, model, profile, sleeping, view
from gateway_exchanges import DeferredLimiter, Gateway, status, user

CONFIG = profile(requestsInflight=3, requestsPerSecond=1000, wakeWaitSeconds=60)


def any_model(random):
    """Awake with some of six engines, asleep, or failed."""
    match random.randrange(3):
        case 0:
            numbers = random.sample(range(6), random.randint(1, 4))
            return model(endpoints=[endpoint(number) for number in numbers], config=CONFIG)
        case 1:
            return sleeping(config=CONFIG)
        case _:
            return sleeping(config=CONFIG, state="failed", wake=False)


async def run(seed, steps=300):
    """The gateway after so many steps, and how its requests ended."""
    random = Random(seed)
    gateway = Gateway(view(model(config=CONFIG)), users=[user(rpm=10**6, tpm=10**9)], limiter=DeferredLimiter())
    waiting, outcomes = [], Counter()
    for _ in range(steps):
        match random.randrange(8):
            case 0 | 1 | 2:
                given = {"user": "ann"} if random.random() < 0.5 else {}
                answer = gateway.exchange.answer(gateway.question(chat(), **given))
                if isinstance(answer, asyncio.Future):
                    waiting.append(answer)
                else:
                    outcomes[status(answer)] += 1
            case 3:
                gateway.limiter.answer()
            case 4:
                await asyncio.sleep(0)
            case 5 if waiting:
                waiting[random.randrange(len(waiting))].cancel()
            case 6:
                gateway.change(any_model(random))
            case 7 if gateway.watching.leases:
                end(gateway, gateway.watching.leases.pop(random.randrange(len(gateway.watching.leases))))
    gateway.change(model(config=CONFIG))
    while not all(each.done() for each in waiting):
        gateway.limiter.answer()
        await asyncio.sleep(0)
    for each in await asyncio.gather(*waiting, return_exceptions=True):
        outcomes["left" if isinstance(each, asyncio.CancelledError) else status(each)] += 1
    return gateway, outcomes


def end(gateway, lease):
    """Envoy's log tells that it is over."""
    gateway.leases.close(lease.id)
    gateway.limiter.settle(lease.granted, 7, gateway.now_s)


@pytest.mark.acceptance("GW-86")
async def test_every_count_is_given_back_once():
    outcomes = Counter()
    for seed in range(60):
        gateway, ended = await run(seed)
        outcomes += ended
        while gateway.watching.leases:
            end(gateway, gateway.watching.leases.pop())
        await asyncio.sleep(0)
        assert (len(gateway.leases), len(gateway.room)) == (0, 0), f"seed {seed}"
        assert (gateway.view.loads.own(), dict(gateway.limiter.slots.held())) == ({}, {}), f"seed {seed}"
    assert min(outcomes[kind] for kind in (200, 429, 503, "left")) > 50, outcomes
    assert outcomes.keys() == {200, 429, 503, "left"}
