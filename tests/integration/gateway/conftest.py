"""One Envoy and two engines a module: a test sets what the exchange and the engines answer."""

import pytest_asyncio
from gateway_engine import echo, running_engine
from gateway_envoy import forward, stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine():
    async with running_engine() as engine:
        yield engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_stage(engine):
    async with stage(lambda _: forward(engine.address)) as played:
        yield played


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(module_stage, engine):
    """The module's, as new."""
    module_stage.exchange.reply = lambda _: forward(engine.address)
    module_stage.exchange.questions.clear()
    module_stage.exchange.entries.clear()
    engine.reply = echo
    engine.seen.clear()
    engine.cut = 0
    return module_stage
