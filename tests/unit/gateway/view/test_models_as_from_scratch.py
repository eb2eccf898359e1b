"""Whatever happened in whatever order, the models are those that the objects of the end make from scratch."""

from gateway_objects import CONFIG, NAME, OLD_ROUTE, ROUTE, Cluster, adapter, claim, pod, route, warm
from hypothesis import given
from hypothesis import strategies as st

MODELS = ("m", "n", "org/x")
PODS = ("a", "b", "c")
models = st.sampled_from(MODELS)
flags = st.booleans()
configs = st.sampled_from((None, "{", '{"lock": "random"}', '{"lock": "least-request"}'))


@st.composite
def own_pods(draw):
    """A Pod with an engine of its own."""
    config = draw(configs)
    return pod(
        draw(st.sampled_from(PODS)),
        labels={NAME: draw(models)} if draw(flags) else {"app": "web"},
        annotations={CONFIG: config} if config else {},
        uid=draw(st.sampled_from("uv")),
        ready=draw(flags),
        deleting=draw(flags),
        ip=draw(st.sampled_from(("", "10.0.0.1", "10.0.0.2"))),
        env={"data-parallel-size": draw(st.sampled_from("12"))},
    )


@st.composite
def warm_pods(draw):
    """A Pod with routes."""
    states = st.sampled_from([(20000, "active"), (20001, "active"), (0, "sleeping"), (0, "failed"), (0, "activating")])
    routes = {name: route(draw(models), *draw(states)) for name in draw(st.sets(st.sampled_from("cd")))}
    return warm(
        draw(st.sampled_from(PODS)),
        routes,
        prefix=draw(st.sampled_from((ROUTE, OLD_ROUTE))),
        asked=draw(st.sets(st.sampled_from("cd"))),
        ready=draw(flags),
        deleting=draw(flags),
    )


claims = st.builds(
    claim,
    st.sampled_from("cd"),
    model=models,
    phase=st.sampled_from((None, "Pending", "Failed")),
    config=configs,
    engine=st.sampled_from(("vllm", "sglang")),
    deleting=flags,
)
adapters = st.builds(
    lambda name, on, base: adapter(name, *on, base=base), models, st.sets(st.sampled_from(PODS)), models
)
gone = st.one_of(
    st.builds(lambda name: {"pod": name}, st.sampled_from(PODS)),
    st.builds(lambda name: {"claim": name}, st.sampled_from("cd")),
    st.builds(lambda name: {"adapter": name}, models),
)


def kind_of(body):
    spec = body["spec"]
    return "pod" if "containers" in spec else "adapter" if "baseModel" in spec else "claim"


def shape(model):
    """What a model says; endpoints are equal only to themselves."""
    endpoints = [(e.key, e.uid, e.address, e.engine, e.labels, e.ready_since_s, e.model) for e in model.endpoints]
    return endpoints, model.engine, model.config, model.standing, model.base


@given(st.lists(st.one_of(own_pods(), warm_pods(), claims, adapters, gone), max_size=25))
def test_the_order_of_events_makes_no_difference(events):
    cluster, kept = Cluster(), {}
    for event in events:
        before = dict(cluster.view.models)
        if "spec" in event:
            told = cluster.has(event)
            kept[kind_of(event), event["metadata"]["name"]] = event
        else:
            told = cluster.lost(**event)
            kept.pop(next(iter(event.items())), None)
        after = cluster.view.models
        changed = [name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)]
        assert sorted(changed) == told

    fresh = Cluster()
    fresh.has(*kept.values())
    assert {n: shape(m) for n, m in cluster.view.models.items()} == {n: shape(m) for n, m in fresh.view.models.items()}


@given(st.lists(st.one_of(own_pods(), warm_pods(), claims, adapters), max_size=25))
def test_every_endpoint_is_a_ready_pods_address_and_a_model_has_endpoints_or_a_reason(events):
    cluster = Cluster()
    cluster.has(*events)
    last = {body["metadata"]["name"]: body for body in events if kind_of(body) == "pod"}
    for model in cluster.view.models.values():
        assert not (model.endpoints and model.standing)
        assert len({endpoint.key for endpoint in model.endpoints}) == len(model.endpoints)
        assert [endpoint.key for endpoint in model.endpoints] == sorted(endpoint.key for endpoint in model.endpoints)
        for endpoint in model.endpoints:
            body = last[endpoint.pod]
            assert endpoint.model == model.name
            assert endpoint.uid == body["metadata"]["uid"]
            assert endpoint.address.startswith(body["status"]["podIP"] + ":")
            assert body["status"]["conditions"][1]["status"] == "True"
            assert "deletionTimestamp" not in body["metadata"]
