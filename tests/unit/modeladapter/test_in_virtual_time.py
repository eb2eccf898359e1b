"""The controller in the frame: what it writes, when it looks, and who it asks."""

import pytest
from adapter_cluster import AdapterCluster

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import (
    ENDPOINT_SLICES,
    HTTP_ROUTES,
    MODEL_ADAPTERS,
    PODS,
    REFERENCE_GRANTS,
    SERVICES,
)
from aibrix_operator.sim import loop


def play(story, **options):
    async def run():
        async with AdapterCluster(**options) as cluster:
            await story(cluster)

    loop.run(run())


@pytest.mark.acceptance("MA-02")
def test_an_adapter_is_loaded_on_both_pods():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.pod("b-2")
        cluster.adapter()
        await cluster.run(5)
        assert (cluster.status()["phase"], cluster.status()["instances"]) == ("Running", ["b-1", "b-2"])
        assert (cluster.holders(), cluster.engines.loads) == ({"b-1", "b-2"}, 2)
        service = cluster.find(SERVICES, "sql")
        assert (service["spec"]["clusterIP"], service["spec"]["ports"][0]["port"]) == ("None", 8000)
        found = cluster.find(ENDPOINT_SLICES, "sql")
        assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "sql"
        assert len(found["endpoints"]) == 2

    play(story)


@pytest.mark.acceptance("MA-50")
def test_a_minute_of_rest_writes_nothing_and_asks_each_engine_every_ten_seconds():
    async def story(cluster):
        for number in range(3):
            cluster.pod(f"b-{number}")
        for number in range(8):
            cluster.adapter(f"a{number}")
        await cluster.run(30)
        written, asked = len(cluster.store.writes), cluster.engines.lists
        await cluster.run(60)
        assert len(cluster.store.writes) == written
        assert cluster.engines.lists - asked in range(15, 22)  # three engines, not eight adapters on each

    play(story)


@pytest.mark.acceptance("MA-08")
def test_a_restarted_engine_has_it_again_within_a_list():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(5)
        written = len(cluster.store.writes)
        cluster.engine("b-1").forget()
        await cluster.run(11)
        assert cluster.holders() == {"b-1"}
        assert len(cluster.store.writes) == written

    play(story)


@pytest.mark.acceptance("MA-51")
def test_a_pod_without_any_of_our_labels_is_seen_at_once():
    async def story(cluster):
        cluster.adapter()
        await cluster.run(5)
        cluster.pod("b-1", labels={"app": "base"})
        await cluster.run(2)
        assert cluster.is_ready()
        cluster.pod("b-1", labels={"app": "other"})
        await cluster.run(2)
        assert (cluster.status().get("instances"), cluster.holders()) == (None, set())

    play(story)


@pytest.mark.acceptance("MA-40")
@pytest.mark.acceptance("MA-43")
def test_a_deleted_adapter_leaves_nothing():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(5)
        cluster.store.delete(MODEL_ADAPTERS, ("default", "sql"))
        await cluster.run(5)
        assert (cluster.store.of(MODEL_ADAPTERS), cluster.holders(), cluster.engines.unloads) == ([], set(), 1)
        assert (cluster.store.of(SERVICES), cluster.store.of(ENDPOINT_SLICES)) == ([], [])

    play(story)


@pytest.mark.acceptance("MA-41")
def test_a_hanging_engine_keeps_a_deletion_for_half_a_minute():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(5)
        cluster.engine("b-1").mode = "hangs"
        cluster.store.delete(MODEL_ADAPTERS, ("default", "sql"))
        await cluster.run(20)
        assert cluster.store.of(MODEL_ADAPTERS)
        await cluster.run(15)
        assert not cluster.store.of(MODEL_ADAPTERS)

    play(story)


def test_deleted_and_created_again_at_once_is_loaded_anew():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(5)
        cluster.store.delete(MODEL_ADAPTERS, ("default", "sql"))
        for _ in range(200):
            await cluster.run(0.01)
            if not cluster.store.of(MODEL_ADAPTERS):
                break
        cluster.adapter()
        await cluster.run(15)
        assert (cluster.is_ready(), cluster.holders()) == (True, {"b-1"})

    play(story)


@pytest.mark.acceptance("MA-52")
def test_another_operator_loads_nothing_and_writes_nothing():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(20)
        written, loads = len(cluster.store.writes), cluster.engines.loads
        await cluster.kill_operator(cluster.leader)
        await cluster.run(30)
        assert (len(cluster.store.writes), cluster.engines.loads, cluster.is_ready()) == (written, loads, True)

    play(story, operators=2)


def test_adapters_that_are_made_together_are_spread():
    async def story(cluster):
        for number in range(4):
            cluster.pod(f"b-{number}")
        await cluster.run(10)
        for number in range(20):
            cluster.adapter(f"a{number:02}", replicas=1)
        await cluster.run(30)
        counts = sorted(len(cluster.engine(f"b-{number}").models) - 1 for number in range(4))
        assert counts == [5, 5, 5, 5]

    play(story)


def test_a_younger_namesake_waits_until_the_name_is_free():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(5)
        cluster.adapter(namespace="team-b")
        await cluster.run(5)
        reasons = {c["type"]: c["reason"] for c in cluster.status(namespace="team-b")["conditions"]}
        assert (cluster.status(namespace="team-b")["phase"], reasons["Ready"]) == ("Failed", "NameInUse")
        cluster.store.delete(MODEL_ADAPTERS, ("default", "sql"))
        await cluster.run(5)
        assert cluster.status(namespace="team-b")["phase"] == "Pending"

    play(story)


def test_a_service_of_somebody_else_is_told_and_left():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.store.put(SERVICES, {"metadata": {"name": "sql", "namespace": "default"}, "spec": {"mine": True}})
        cluster.adapter()
        await cluster.run(20)
        condition = next(c for c in cluster.status()["conditions"] if c["type"] == "ResourceCreated")
        assert (cluster.status()["phase"], condition["reason"]) == ("ResourceCreated", "ServiceCreateError")
        assert "belongs to another" in condition["message"]
        assert cluster.find(SERVICES, "sql")["spec"] == {"mine": True}
        cluster.store.delete(SERVICES, ("default", "sql"))
        await cluster.run(20)
        assert cluster.is_ready()

    play(story)


def test_a_refused_slice_is_told_and_written_once_it_is_taken():
    async def story(cluster):
        def refuse(verb, resource, name, body):
            if resource == ENDPOINT_SLICES and verb == "create":
                return errors.Invalid("endpoints[0].addresses[0]: may not be in the loopback range", status=422)
            return None

        cluster.store.fault = refuse
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(20)
        conditions = {c["type"]: c["reason"] for c in cluster.status()["conditions"]}
        assert (conditions["Ready"], cluster.status()["instances"]) == ("EndpointSliceCreateError", ["b-1"])
        written = len(cluster.store.writes)
        await cluster.run(60)
        assert len(cluster.store.writes) == written
        cluster.store.fault = lambda *_: None
        await cluster.run(15)
        assert cluster.is_ready()

    play(story)


@pytest.mark.acceptance("MA-60")
def test_a_route_comes_and_goes_with_the_adapter_and_the_grant_with_the_last():
    async def story(cluster):
        cluster.pod("b-1")
        for name in ("sql", "law"):
            cluster.adapter(name, labels={names.MODEL_LABEL: name})
        await cluster.run(5)
        route = cluster.find(HTTP_ROUTES, "sql-router", "aibrix-system")
        assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "sql", "namespace": "default", "port": 8000}]
        assert route["spec"]["rules"][0]["timeouts"] == {"request": "120s"}
        grant = "aibrix-system-reserved-referencegrant-in-default"
        assert cluster.names_of(REFERENCE_GRANTS) == [grant]
        cluster.store.delete(MODEL_ADAPTERS, ("default", "sql"))
        await cluster.run(5)
        assert (cluster.names_of(HTTP_ROUTES), cluster.names_of(REFERENCE_GRANTS)) == (["law-router"], [grant])
        cluster.store.delete(MODEL_ADAPTERS, ("default", "law"))
        await cluster.run(5)
        assert (cluster.names_of(HTTP_ROUTES), cluster.names_of(REFERENCE_GRANTS)) == ([], [])

    play(story)


def test_a_missing_right_to_make_routes_is_told_once_seldom_asked_again_and_delays_nothing():
    async def story(cluster):
        asked, is_given = [], False

        def forbid(verb, resource, name, body):
            if resource != HTTP_ROUTES or is_given:
                return None
            asked.append(verb)
            return errors.Denied("forbidden", status=403)

        cluster.store.fault = forbid
        cluster.pod("b-1")
        for name in ("sql", "law"):
            cluster.adapter(name, labels={names.MODEL_LABEL: name})
        await cluster.run(290)
        assert cluster.is_ready()
        assert asked == ["get", "get"]
        message = (
            "HTTPRoutes and ReferenceGrants may not be written: "
            "the chart's value modelAdapters.httpRoutes gives the right"
        )
        assert cluster.events("HTTPRouteForbidden") == [("HTTPRouteForbidden", message)] * 2
        cluster.store.delete(MODEL_ADAPTERS, ("default", "sql"))
        await cluster.run(2)
        assert cluster.find(MODEL_ADAPTERS, "sql") is None
        is_given = True
        await cluster.run(30)
        assert cluster.names_of(HTTP_ROUTES) == ["law-router"]

    play(story)


def test_a_pod_that_is_replaced_under_its_name_is_loaded_anew():
    async def story(cluster):
        cluster.pod("b-1")
        cluster.adapter()
        await cluster.run(5)
        cluster.remove_pod("b-1")
        cluster.pod("b-1")
        await cluster.run(15)
        assert (cluster.is_ready(), cluster.holders(), cluster.find(PODS, "b-1") is not None) == (True, {"b-1"}, True)

    play(story)
