"""One gateway put together: what keeps it from being ready, and who hears of a model that changed."""

import contextlib
import json

import aiohttp
import pytest
from gateway_objects import NAME, pod
from gateway_store import Server

from aibrix_operator.gateway import app
from aibrix_operator.gateway.app import GatewayError, Replica, SteadyClock
from aibrix_operator.gateway.facts import parse_pod
from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.limits.users import Policy
from aibrix_operator.gateway.modeling import ModelChange
from aibrix_operator.gateway.options import Options
from aibrix_operator.gateway.profiles import parse_config
from aibrix_operator.gateway.view import EngineMetrics, Model

NOT_LISTED, NO_ENVOY = "the first lists of Pods and claims are not in", "Envoy is not ready"


class Admin:
    """Envoy's, as it is asked for readiness."""

    is_up = True

    async def is_ready(self):
        return self.is_up


class Envoy:
    """A gateway's Envoy that runs."""

    def __init__(self):
        self.admin = Admin()


@contextlib.asynccontextmanager
async def replica(**options):
    async with aiohttp.ClientSession() as session:
        made = Replica(Options(**options), Server(), session)
        yield made
        await made._close()


@pytest.mark.acceptance("GW-119")
async def test_gw119_it_is_ready_once_the_first_lists_are_in_and_envoy_is():
    async with replica() as made:
        assert await made.problems() == [NOT_LISTED, NO_ENVOY]
        made.gateway = Envoy()
        assert await made.problems() == [NOT_LISTED]
        made.view.is_synced = True
        assert await made.problems() == []
        made.gateway.admin.is_up = False
        assert await made.problems() == [NO_ENVOY]


@pytest.mark.acceptance("GW-119")
async def test_gw119_it_is_not_ready_while_the_redis_that_it_shall_use_has_not_answered():
    async with replica(redis_url="redis://127.0.0.1:1/0", redis_away=Policy.CLOSED) as made:
        made.view.is_synced, made.gateway = True, Envoy()
        assert await made.problems() == ["Redis has not answered yet"]


async def test_one_that_is_stopping_is_not_ready_and_says_so():
    async with replica() as made:
        made.view.is_synced, made.gateway, made.is_stopping = True, Envoy(), True
        assert await made.problems() == ["the gateway is stopping"]


async def test_its_status_page_is_json_from_the_first_moment():
    async with replica() as made:
        told = {name: section() for name, section in made._sources().status.items()}
        page = json.loads(json.dumps(told))
        assert page["limits"]["store"] == "memory"
        assert page["requests"] == {"running": 0, "held": 0, "being_decided": 0}
        assert page["cluster"]["synced"] is False


async def test_a_model_that_changed_rouses_who_waits_for_it_and_drops_figures_of_addresses_that_are_gone():
    async with replica() as made:
        found = pod("a", labels={NAME: "m"}), pod("b", labels={NAME: "m"}, ip="10.0.0.2")
        catalogue = made.watching._catalogue
        for body in found:
            catalogue.set_pod(("default", body["metadata"]["name"]), parse_pod(body))
        made.watching._refresh()
        before = made.view.models["m"]
        for endpoint in before.endpoints:
            made.readings[endpoint.address] = EngineMetrics(1.0)
        seat = made.room.enter("m")
        change = seat.change(60)
        catalogue.set_pod(("default", "b"), None)
        made.watching._refresh()
        assert await change is True
        seat.leave()
        assert list(made.readings) == ["10.0.0.1:8000"]
        made._model_changed(ModelChange("m", made.view.models["m"], None))
        assert list(made.readings) == []


@pytest.mark.parametrize(
    ("limits", "is_told"),
    [
        ({"requestsInflight": 3, "requestsPerSecondPerReplica": 10}, True),
        ({"requestsInflight": 10, "requestsPerSecondPerReplica": 10}, False),
        ({"requestsInflight": 3}, False),
        ({"requestsPerSecondPerReplica": 10}, False),
    ],
)
async def test_a_cap_below_the_rate_is_warned_of_once(caplog, limits, is_told):
    config = parse_config(json.dumps({"profiles": {"busy": limits, "other": {}}}), Knobs())
    async with replica() as made:
        first, second = (Model("qwen", (), config=config) for _ in range(2))
        made._model_changed(ModelChange("qwen", None, first))
        made._model_changed(ModelChange("qwen", first, second))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == is_told
    if is_told:
        assert "model qwen, profile busy: requestsInflight 3 is below requestsPerSecondPerReplica 10" in told[0]


def test_a_steady_clock_tells_unix_time_and_never_goes_back(monkeypatch):
    wall, steady = [1000.0], [5.0]
    monkeypatch.setattr(app.time, "time", lambda: wall[0])
    monkeypatch.setattr(app.time, "monotonic", lambda: steady[0])
    clock = SteadyClock()
    assert clock() == 1000.0
    wall[0], steady[0] = 400.0, 6.5
    assert clock() == 1001.5


async def test_a_url_that_is_none_is_told():
    async with aiohttp.ClientSession() as session:
        with pytest.raises(GatewayError, match="URL of Redis"):
            Replica(Options(redis_url="nonsense"), Server(), session)
