"""Where requests go, and which are refused."""

from random import Random

import orjson
import pytest
from gateway_asks import asked, chat, decided, endpoint, model, parsed, profile, sleeping, view

from aibrix_operator.gateway.decide import Settings, decide
from aibrix_operator.gateway.strategies.base import Pick
from aibrix_operator.gateway.verdict import Forward, RateLimit, Refuse, Wait
from aibrix_operator.gateway.view import Model


class Routing:
    """Keeps what it was asked, and picks the last."""

    text = "fake"

    def __init__(self):
        self.asks = []

    def pick(self, ask):
        self.asks.append(ask)
        return Pick(ask.candidates[-1], "no_metrics")


class Book:
    def __init__(self):
        self.routing = Routing()

    def compile(self, text, knobs):
        return self.routing


def refused(request, seen, **given):
    verdict = decided(request, seen, **given)
    assert isinstance(verdict, Refuse), verdict
    return verdict


def error_of(refuse):
    return orjson.loads(refuse.body())["error"]


def forwarded(request, seen, **given):
    verdict = decided(request, seen, **given)
    assert isinstance(verdict, Forward), verdict
    return verdict


@pytest.mark.acceptance("GW-2")
def test_an_unknown_model_does_not_exist():
    refuse = refused(asked("x"), view(model()))
    assert (refuse.status, refuse.headers) == (400, {"x-error-no-model-backends": "x"})
    assert error_of(refuse) == {
        "message": "model x does not exist",
        "type": "invalid_request_error",
        "code": "model_not_found",
        "param": "model",
    }


@pytest.mark.acceptance("GW-8")
def test_a_chat_without_model_names_one_that_does_not_exist():
    refuse = refused(parsed({"messages": [{"content": "x"}]}), view(model()))
    assert (refuse.status, refuse.code) == (400, "model_not_found")


def test_before_the_first_lists_an_unknown_model_may_only_be_unread():
    refuse = refused(asked("x"), view(is_synced=False))
    assert (refuse.status, refuse.retry_after_s, refuse.code) == (503, 1, "service_unavailable")


@pytest.mark.acceptance("GW-3")
def test_a_model_without_ready_pods_is_unavailable():
    refuse = refused(asked(), view(model(pods=0)))
    assert (refuse.status, refuse.headers, refuse.retry_after_s) == (503, {"x-error-no-model-backends": "true"}, None)
    assert error_of(refuse) == {
        "message": "error on getting pods for model m",
        "type": "overloaded_error",
        "code": "service_unavailable",
        "param": None,
    }


@pytest.mark.acceptance("GW-14")
@pytest.mark.parametrize(
    "refuse",
    [
        refused(asked("x"), view()),
        refused(asked(), view(model(pods=0))),
        refused(asked(routing_strategy="no"), view(model())),
        parsed(b"{"),
        parsed(chat(), path="/no"),
        parsed(chat(), method="GET"),
    ],
)
def test_every_error_is_json_with_four_members(refuse):
    assert ("content-type", "application/json") in refuse.response_headers()
    assert set(error_of(refuse)) == {"message", "type", "code", "param"}


@pytest.mark.acceptance("GW-15")
@pytest.mark.parametrize("name", ["org/m", "with blank", "模型", "m" * 200])
def test_a_model_is_found_by_any_name(name):
    assert forwarded(asked(name), view(model(name))).endpoint.model == name


@pytest.mark.acceptance("GW-16")
@pytest.mark.parametrize(
    ("engine", "path", "expected"),
    [
        ("xdit", "/v1/images/generations", "/generate"),
        ("xdit", "/v1/video/generations?a=b&c", "/generatevideo?a=b&c"),
        ("xdit", "/v1/chat/completions", None),
        ("vllm", "/v1/images/generations", None),
    ],
)
def test_xdit_has_paths_of_its_own(engine, path, expected):
    assert forwarded(asked(path=path), view(model(engine=engine))).path == expected


@pytest.mark.acceptance("GW-28")
@pytest.mark.parametrize(
    "text", ["no-such", "least-request:0", "least-request:1.5", ",", "least-request,", "pd", "slo"]
)
def test_a_strategy_that_is_none_is_refused(text):
    refuse = refused(asked(routing_strategy=text), view(model(config=profile(requestsPerSecond=1))))
    assert (refuse.status, refuse.message) == (400, f"incorrect routing strategy {text}")
    assert refuse.headers == {"x-error-routing": "true"}
    assert error_of(refuse)["code"] is None


@pytest.mark.acceptance("GW-27")
def test_a_locked_strategy_that_is_none_is_refused():
    assert refused(asked(), view(model(config={"lockedRoutingStrategy": "no-such"}))).status == 400


@pytest.mark.acceptance("GW-19")
@pytest.mark.acceptance("GW-106")
def test_without_any_strategy_it_is_unavailable_and_not_unknown():
    refuse = refused(asked(), view(model()), default=None)
    assert (refuse.status, refuse.headers, refuse.code) == (503, {"x-error-routing": "true"}, "service_unavailable")
    assert "routing-strategy" in refuse.message


@pytest.mark.acceptance("GW-29")
@pytest.mark.parametrize("headers", [{}, {"routing_strategy": ""}, {"routing_strategy": " "}])
def test_an_empty_strategy_is_unset(headers):
    assert refused(asked(**headers), view(model()), default="").status == 503
    assert forwarded(asked(**headers), view(model()), default="random").strategy == "random"


def test_an_error_repeats_only_so_much_of_what_the_client_named():
    long = "n" * 1_000_000
    for refuse in (
        refused(asked(long), view()),
        refused(asked(long), view(is_synced=False)),
        refused(asked(routing_strategy=long), view(model())),
        refused(asked(external_filter=long), view(model())),
    ):
        assert len(refuse.body()) < 600
        assert all(len(value) <= 256 for _, value in refuse.response_headers())


# --- candidates

ZONES = [endpoint(0, zone="a"), endpoint(1, zone="b"), endpoint(2)]


@pytest.mark.acceptance("GW-35")
def test_the_filter_leaves_what_it_fits():
    seen = view(model(endpoints=ZONES))
    for seed in range(20):
        assert forwarded(asked(external_filter="zone=a"), seen, seed=seed, default="random").endpoint is ZONES[0]
    assert forwarded(asked(external_filter="!zone"), seen).endpoint is ZONES[2]


@pytest.mark.acceptance("GW-35")
@pytest.mark.parametrize(("text", "status"), [("zone=c", 503), ("zone==", 400), ("zone in", 400)])
def test_a_filter_that_leaves_none_or_is_none_is_refused(text, status):
    refuse = refused(asked(external_filter=text), view(model(endpoints=ZONES)))
    assert (refuse.status, refuse.headers) == (status, {"x-error-routing": "true"})


@pytest.mark.acceptance("GW-35")
def test_without_a_strategy_the_filter_is_not_looked_at():
    refuse = refused(asked(external_filter="zone=="), view(model(endpoints=ZONES)), default=None)
    assert refuse.status == 503


@pytest.mark.acceptance("GW-52")
def test_with_one_endpoint_nothing_is_chosen_but_the_strategies_are_known():
    book, seen = Book(), view(model(pods=1))
    verdict = forwarded(asked(), seen, book=book)
    assert book.routing.asks == []
    assert verdict.routing is book.routing
    assert verdict.ask.candidates == (verdict.endpoint,)


def test_the_strategies_are_asked_of_the_models_own_endpoints_and_heard():
    book, seen = Book(), view(model(pods=3), model("other"))
    verdict = forwarded(asked(), seen, book=book)
    (ask,) = book.routing.asks
    assert ask.candidates is seen.models["m"].endpoints
    assert (verdict.endpoint, verdict.fallback, verdict.ask) == (ask.candidates[2], "no_metrics", ask)


def test_least_request_goes_where_least_runs():
    assert forwarded(asked(), view(model(pods=3), counts={"p0000": 3, "p0002": 1})).endpoint.pod == "p0001"


# --- rates and caps


def test_a_rate_is_told_for_all_ready_replicas_also_those_filtered_out():
    seen = view(model(endpoints=ZONES, config=profile(requestsPerSecondPerReplica=10)))
    assert forwarded(asked(external_filter="zone=a"), seen).rps == RateLimit(30, 1, "30")


@pytest.mark.acceptance("GW-83")
def test_a_strategy_of_the_header_keeps_the_caps():
    seen = view(model(config=profile(requestsPerSecondPerReplica=10, requestsInflight=2)))
    verdict = forwarded(asked(routing_strategy="random"), seen)
    assert (verdict.strategy, verdict.rps, verdict.inflight) == ("random", RateLimit(20, 1, "20"), 2)


@pytest.mark.acceptance("GW-85")
@pytest.mark.parametrize("strategy", ["random", "least-request"])
def test_a_full_endpoint_is_tried_last(strategy):
    seen = view(model(pods=4, config=profile(requestsInflight=3)), counts={"p0000": 3, "p0001": 5, "p0002": 1})
    for seed in range(20):
        verdict = forwarded(asked(routing_strategy=strategy), seen, seed=seed)
        tried = [each.pod for each in (verdict.endpoint, *verdict.others)]
        assert (set(tried[:2]), tried[2:]) == ({"p0002", "p0003"}, ["p0000", "p0001"])


@pytest.mark.acceptance("GW-87")
@pytest.mark.parametrize(("rate", "limit"), [({}, None), ({"requestsPerSecond": 5}, RateLimit(5, 1, "5"))])
def test_with_every_endpoint_full_as_far_as_is_known_the_limits_say_whether_and_why_it_is_refused(rate, limit):
    """Another gateway may have given a slot back a moment ago."""
    config = profile(requestsInflight=3, **rate)
    verdict = forwarded(asked(), view(model(config=config), counts={"p0000": 3, "p0001": 4}))
    assert (verdict.inflight, verdict.rps) == (3, limit)
    assert [each.pod for each in (verdict.endpoint, *verdict.others)] == ["p0000", "p0001"]


def test_others_are_told_best_first_and_not_all_of_many():
    config = profile(requestsInflight=100)
    counts = {f"p{number:04}": number for number in range(30)}
    verdict = forwarded(asked(), view(model(pods=30, config=config), counts=counts))
    assert [each.pod for each in (verdict.endpoint, *verdict.others)] == [f"p{number:04}" for number in range(16)]


# --- claims


@pytest.mark.acceptance("GW-101")
@pytest.mark.acceptance("GW-102")
@pytest.mark.parametrize(
    ("state", "reason", "retry_s", "message"),
    [
        ("sleeping", "", 10, "model m is sleeping; retry shortly"),
        ("activating", "", 10, "model m is activating; retry shortly"),
        ("failed", "EngineFailed", 10, "model m is failed (EngineFailed); retry shortly"),
        ("pending", "WaitingForRoom", 20, "model m is pending (WaitingForRoom); retry shortly"),
        ("pending", "MakingRoom", 20, "model m is pending (MakingRoom); retry shortly"),
        ("activating", "Moving", 30, "model m is activating (Moving); retry shortly"),
        ("failed", "InvalidEngineConfig", None, "model m is failed (InvalidEngineConfig)"),
        ("pending", "InvalidPerGPU", None, "model m is pending (InvalidPerGPU)"),
        ("pending", "TooLargeForAnyCard", None, "model m is pending (TooLargeForAnyCard)"),
    ],
)
def test_a_claim_without_engine_says_how_it_stands(state, reason, retry_s, message):
    refuse = refused(asked(), view(sleeping(state=state, reason=reason, retry_after_s=retry_s, wake=False)))
    assert (refuse.status, refuse.retry_after_s, refuse.wake) == (503, retry_s, None)
    assert refuse.headers == {"x-error-no-model-backends": "m"}
    error = {"message": message, "type": "overloaded_error", "code": "service_unavailable", "param": "model"}
    assert error_of(refuse) == error


@pytest.mark.acceptance("GW-101")
def test_a_sleeping_engine_is_to_be_woken():
    refuse = refused(asked(), view(sleeping()))
    assert refuse.wake.claim == "m"


def test_the_standing_of_a_claim_goes_before_its_strategy():
    assert refused(asked(routing_strategy="no-such"), view(sleeping())).status == 503


@pytest.mark.parametrize("state", ["sleeping", "activating"])
def test_a_profile_may_let_requests_wait_for_a_wake(state):
    verdict = decided(asked(), view(sleeping(config=profile(wakeWaitSeconds=20), state=state)))
    assert isinstance(verdict, Wait)
    assert (verdict.wait_s, verdict.refuse.status, verdict.refuse.wake.claim) == (20.0, 503, "m")


@pytest.mark.parametrize("state", ["failed", "pending"])
def test_nobody_waits_for_what_does_not_end_in_an_engine(state):
    assert isinstance(decided(asked(), view(sleeping(config=profile(wakeWaitSeconds=20), state=state))), Refuse)


@pytest.mark.acceptance("GW-105")
def test_two_models_on_one_pod_are_told_apart_by_their_ports():
    first, second = endpoint(0, model="a", port=20000), endpoint(0, model="b", port=20001)
    seen = view(model("a", endpoints=[first]), model("b", endpoints=[second]), counts={"p0000": 1})
    assert forwarded(asked("a"), seen).endpoint is first
    assert forwarded(asked("b"), seen).endpoint is second
    assert first.key != second.key


def test_a_decision_changes_nothing_that_it_looked_at():
    seen = view(model(pods=5, config=profile(requestsInflight=9)), counts={"p0001": 2})
    before = (seen.models["m"].endpoints, seen.loads.own())
    decide(asked(), seen, Book(), Settings("fake"), 0.0, Random(0))
    assert (seen.models["m"].endpoints, seen.loads.own()) == before


class Unwalked(tuple):
    """Endpoints that may be counted and looked up, and after ``close`` no more be walked over."""

    is_closed = False

    def __iter__(self):
        assert not self.is_closed, "somebody walks over all endpoints"
        return super().__iter__()


def test_the_decision_does_not_walk_over_the_pods():
    endpoints = Unwalked(endpoint(number) for number in range(50))
    many = Model("m", endpoints)
    seen = view(many)
    forwarded(asked(), seen)
    endpoints.is_closed = True
    for _ in range(100):
        seen.loads.add(forwarded(asked(), seen).endpoint)
    assert {seen.loads.count(endpoints[place]) for place in range(50)} == {2}
