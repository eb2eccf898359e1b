"""The view follows the API server: filled by lists, kept by watches, valid while the server is away."""

import asyncio
import contextlib

import pytest
from gateway_objects import NAME, claim, parse_config, pod, route, until, warm
from gateway_store import Server

from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.gateway import watching
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.view import View
from aibrix_operator.gateway.watching import ListAges, Scope, Watching, until_list_s


@pytest.fixture
async def server(monkeypatch):
    monkeypatch.setattr(watching, "_BACKOFF", Backoff(initial_s=0.01, max_s=0.02))
    return Server()


EVERYTHING = Scope()


@contextlib.asynccontextmanager
async def following(server, scope=EVERYTHING, *, wait=True):
    view = View(Loads())
    found = Watching(server, view, parse_config, scope)
    found.view, found.changes = view, []
    found.on_change.append(found.changes.append)
    task = asyncio.create_task(found.run())
    try:
        if wait:
            await until(lambda: view.is_synced)
        yield found
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_first_lists_make_the_models_and_watches_keep_them(server):
    server.put("pods", warm(routes={"c": route("m", 20000)}))
    server.put("modelclaims", claim("d", model="n"))
    async with following(server) as found:
        assert set(found.view.models) == {"m", "n"}
        server.put("pods", pod("a", labels={NAME: "k"}))
        await until(lambda: "k" in found.view.models)
        server.put("pods", pod("a", labels={"app": "web"}))
        await until(lambda: "k" not in found.view.models)
        server.remove("modelclaims", "d")
        await until(lambda: "n" not in found.view.models)
        assert [(c.name, c.new is None) for c in found.changes[-3:]] == [("k", False), ("k", True), ("n", True)]


async def test_most_pods_of_a_cluster_are_let_go_of_at_once(server):
    for number in range(5):
        server.put("pods", pod(f"web-{number}", labels={"app": "web"}))
    server.put("pods", pod("a", labels={NAME: "m"}))
    async with following(server) as found:
        (pods,) = [watch for watch in found.watches if watch.resource.plural == "pods"]
        assert [name for _, name in pods.objects] == ["a"]
        server.put("pods", pod("web-1", labels={"app": "web"}, annotations={"x": "y"}))
        server.put("pods", pod("web-1", labels={NAME: "n"}))
        await until(lambda: "n" in found.view.models)
        server.remove("pods", "web-2")
        server.remove("pods", "web-1")
        await until(lambda: "n" not in found.view.models)


async def test_a_cluster_without_claims_and_adapters_is_served_all_the_same(server):
    server.absent |= {"modelclaims", "modeladapters"}
    server.put("pods", pod("a", labels={NAME: "m"}))
    async with following(server) as found:
        assert set(found.view.models) == {"m"}
        assert [watch.resource.plural for watch in found.watches] == ["pods"]


@pytest.mark.acceptance("GW-119")
@pytest.mark.parametrize("kind", ["pods", "modelclaims"])
async def test_gw119_it_is_not_synced_before_every_first_list_is_in(server, kind):
    server.put("pods", pod("a", labels={NAME: "m"}))
    server.held.add(kind)
    async with following(server, wait=False) as found:
        await until(lambda: server.asked(kind))
        await until(lambda: all(watch.synced.is_set() for watch in found.watches if watch.resource.plural != kind))
        assert not found.view.is_synced
        server.let_go(kind)
        await until(lambda: found.view.is_synced)
        assert "m" in found.view.models


async def test_what_was_known_stays_known_while_the_server_is_away_and_no_list_is_sent_after_it(server):
    server.put("pods", pod("a", labels={NAME: "m"}))
    async with following(server) as found:
        lists = server.lists()
        before = found.view.models["m"]
        server.stop()
        asked = len(server.requests)
        await until(lambda: len(server.requests) > asked + 3)  # every watch has failed
        assert found.view.models["m"] is before
        assert found.view.is_synced
        server.put("pods", pod("b", labels={NAME: "n"}))
        server.start()
        await until(lambda: "n" in found.view.models)
        assert server.lists() == lists


async def test_a_server_that_forgot_its_history_is_listed_once_a_kind(server, monkeypatch):
    monkeypatch.setattr(watching, "RELIST_SPREAD_S", 0.05)
    server.put("pods", pod("a", labels={NAME: "m"}))
    async with following(server) as found:
        lists = server.lists()
        server.stop()
        server.forget_history()
        server.put("pods", pod("b", labels={NAME: "n"}))
        server.start()
        await until(lambda: "n" in found.view.models)
        await until(lambda: server.lists() == lists + 3)
        assert found.view.models.keys() == {"m", "n"}


@pytest.mark.parametrize("late_s", [0.0, 1.3, 7.7, 12.4])
def test_a_replicas_lists_of_pods_and_claims_are_half_a_window_apart_however_late_a_watch_is(late_s):
    spread_s = watching.RELIST_SPREAD_S
    pods_s = 100.0 + until_list_s(PODS, 3.3, 100.0)
    claims_s = 100.0 + late_s + until_list_s(MODEL_CLAIMS, 3.3, 100.0 + late_s)
    assert abs(pods_s - claims_s) >= spread_s / 2 - 1e-6
    assert 0.0 <= pods_s - 100.0 < spread_s


async def test_the_pods_of_a_list_make_their_model_once(server):
    for number in range(50):
        server.put("pods", pod(f"p{number}", labels={NAME: "m"}))
    async with following(server) as found:
        assert [change.name for change in found.changes] == ["m"]
        assert len(found.view.models["m"].endpoints) == 50


async def test_a_pod_that_is_gone_is_told_by_its_uid_and_one_that_is_not_ready_is_not(server):
    server.put("pods", pod("a", labels={NAME: "m"}, uid="first"))
    async with following(server) as found:
        gone = []
        found.on_pod_gone.append(gone.append)
        server.put("pods", pod("a", labels={NAME: "m"}, uid="first", ready=False))
        await until(lambda: not found.view.models["m"].endpoints)
        assert gone == []
        server.put("pods", pod("a", labels={NAME: "m"}, uid="second"))
        await until(lambda: gone == ["first"])
        server.remove("pods", "a")
        await until(lambda: gone == ["first", "second"])


async def test_an_engine_that_sleeps_or_moves_is_told_and_one_whose_pod_is_not_ready_is_not(server):
    awake, asleep = {"c": route("m", 9000), "d": route("n", 9001)}, {"c": route("m"), "d": route("n", 9001)}
    server.put("pods", warm("a", awake, uid="u"))
    async with following(server) as found:
        ended = []
        found.on_engine_ended.append(lambda model, incarnation: ended.append((model, incarnation)))
        server.put("pods", warm("a", awake, uid="u", ready=False))
        await until(lambda: not found.view.models["m"].endpoints)
        assert ended == []
        server.put("pods", warm("a", asleep, uid="u", ready=False))
        await until(lambda: ended == [("m", "default/a:9000#u")])
        server.put("pods", warm("a", awake, uid="u"))
        await until(lambda: len(found.view.models["m"].endpoints) == 1)
        server.put("pods", warm("a", {"d": route("n", 9001)}, uid="u"))
        await until(lambda: ended == [("m", "default/a:9000#u")] * 2)
        assert len(found.view.models["n"].endpoints) == 1


async def test_a_model_that_is_gone_leaves_no_counts_behind(server):
    server.put("pods", pod("a", labels={NAME: "m"}))
    async with following(server) as found:
        found.view.loads.board(found.view.models["m"])
        server.remove("pods", "a")
        await until(lambda: "m" not in found.view.models)
        assert found.view.loads._boards == {}


async def test_namespace_and_selector_narrow_what_is_asked_for(server):
    server.put("pods", pod("a", labels={NAME: "m"}, namespace="models"))
    server.put("pods", pod("b", labels={NAME: "n"}))
    async with following(server, Scope("models", "team=x")) as found:
        assert set(found.view.models) == {"m"}
        assert server.selectors("pods") == {"team=x"}
        assert server.selectors("modelclaims") == {""}


async def test_the_age_of_each_kinds_list_is_a_metric(server):
    server.absent.add("modeladapters")
    async with following(server) as found:
        families = {family.name: family for family in ListAges(found).collect()}
        for name in ("aibrix_gateway_list_age_seconds", "aibrix_gateway_watch_silence_seconds"):
            samples = {s.labels["kind"]: s.value for s in families[name].samples}
            assert samples.keys() == {"pods", "modelclaims"}
            assert all(0 <= value < 5 for value in samples.values())
        assert {s.value for s in families["aibrix_gateway_lists"].samples} == {1.0}
