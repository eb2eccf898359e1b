"""Which engines are scraped, how often, and what becomes of figures that grow old."""

import asyncio
import contextlib

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gateway_objects import until
from prometheus_client import CollectorRegistry

from aibrix_operator.gateway import scraping
from aibrix_operator.gateway.scraping import Readings, Scraper
from aibrix_operator.gateway.view import EngineMetrics


class Engine:
    """One metrics page, and how often it was read."""

    def __init__(self):
        self.reads = 0
        self.status = 200
        self.text = "vllm:num_requests_running 1\n"
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        self.server = TestServer(app)

    async def _metrics(self, request):
        self.reads += 1
        return web.Response(text=self.text, status=self.status)

    @property
    def address(self):
        return f"{self.server.host}:{self.server.port}"


@pytest.fixture
async def engine():
    made = Engine()
    await made.server.start_server()
    yield made
    await made.server.close()


class Scraping:
    """A scraper at work, with a clock that the test moves. It looks around every few milliseconds of real time."""

    def __init__(self, session):
        self.now_s = 1000.0
        self.readings = Readings(clock=lambda: self.now_s)
        self.registry = CollectorRegistry()
        self.scraper = Scraper(
            session, self.readings, self.registry, clock=lambda: self.now_s, wall=lambda: self.now_s, look_s=0.002
        )

    async def turns(self, count=5):
        """Let it look around some times."""
        looked = self.scraper.looks
        await until(lambda: self.scraper.looks >= looked + count)

    def known(self, address):
        """The metrics, without the question being noted."""
        return dict.get(self.readings, address)


@pytest.fixture
async def scraping_():
    async with aiohttp.ClientSession() as session:
        made = Scraping(session)
        task = asyncio.create_task(made.scraper.run())
        yield made
        assert not task.done(), "it ends by cancellation only"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_an_engine_is_scraped_once_a_period_from_the_first_question_on(scraping_, engine):
    await scraping_.turns()
    assert engine.reads == 0
    assert scraping_.readings.get(engine.address) is None
    await until(lambda: scraping_.known(engine.address))
    assert scraping_.readings.get(engine.address).running == 1.0
    await scraping_.turns()
    assert engine.reads == 1
    scraping_.now_s += 1.0
    await until(lambda: engine.reads == 2)


@pytest.mark.parametrize("ask", [Readings.get, Readings.__contains__], ids=["get", "in"])
async def test_every_way_to_ask_counts(scraping_, engine, ask):
    ask(scraping_.readings, engine.address)
    await until(lambda: engine.reads == 1)


async def test_a_subscript_counts_too(scraping_, engine):
    with pytest.raises(KeyError):
        scraping_.readings[engine.address]
    await until(lambda: engine.reads == 1)


async def test_an_engine_that_nobody_asks_about_any_more_is_left_alone_and_forgotten(scraping_, engine):
    scraping_.readings.get(engine.address)
    await until(lambda: scraping_.known(engine.address))
    scraping_.now_s += scraping.UNASKED_FOR_S + 1
    await until(lambda: not scraping_.known(engine.address))
    reads = engine.reads
    scraping_.now_s += 60
    await scraping_.turns()
    assert engine.reads == reads


async def test_figures_that_cannot_be_renewed_are_thrown_away_when_they_are_old(scraping_, engine):
    scraping_.readings.get(engine.address)
    await until(lambda: scraping_.known(engine.address))
    engine.status = 500
    scraping_.now_s += 1
    await until(lambda: engine.reads == 2)
    assert scraping_.known(engine.address)
    scraping_.now_s += 4.5
    await until(lambda: not scraping_.known(engine.address))


async def test_a_failing_engine_is_asked_less_and_less_often_and_at_once_again_when_it_answers(scraping_, engine):
    engine.status = 503
    scraping_.readings.get(engine.address)
    await until(lambda: scraping_.registry.get_sample_value("aibrix_gateway_scrape_failures_total") == 1)
    scraping_.now_s += 1.3
    await until(lambda: scraping_.registry.get_sample_value("aibrix_gateway_scrape_failures_total") == 2)
    scraping_.now_s += 1.3
    await scraping_.turns()
    assert engine.reads == 2
    engine.status = 200
    scraping_.now_s += 1.2
    await until(lambda: scraping_.known(engine.address))
    scraping_.now_s += 1.0
    await until(lambda: engine.reads == 4)


async def test_nothing_listens_there(scraping_):
    scraping_.readings.get("127.0.0.1:1")
    await until(lambda: scraping_.registry.get_sample_value("aibrix_gateway_scrape_failures_total") == 1)


async def test_an_endpoint_that_is_gone_is_dropped_with_its_figures(scraping_, engine):
    scraping_.readings.get(engine.address)
    await until(lambda: scraping_.known(engine.address))
    scraping_.readings.drop(engine.address)
    assert scraping_.known(engine.address) is None
    await until(lambda: scraping_.registry.get_sample_value("aibrix_gateway_scraped_engines") == 0)


def test_readings_are_an_ordinary_map_to_those_who_decide():
    readings = Readings()
    readings["a"] = EngineMetrics(1.0)
    assert readings["a"].at_s == 1.0
    assert "a" in readings
    assert readings.get("b", 5) == 5
