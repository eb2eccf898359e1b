"""The annotation ``model.aibrix.ai/config``, and the profile that a request gets."""

import orjson
import pytest
from gateway_asks import asked, chat, decided, model, parsed, profile, view
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.profiles import Hints, ModelConfig, Profile, parse_config, reader
from aibrix_operator.gateway.verdict import Forward


def read(document):
    return parse_config(document if isinstance(document, str) else orjson.dumps(document).decode(), Knobs())


def strategy_of(config, **headers):
    """Which strategy a request of a model with this config is routed by; the gateway's default is ``throughput``."""
    verdict = decided(asked(**headers), view(model(config=config)), default="throughput")
    assert isinstance(verdict, Forward), verdict
    return verdict.strategy


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", "{}", '{"profiles":null}', '{"profiles":[]}'])
def test_what_is_no_config_is_as_if_absent(text):
    assert read(text) is None


def test_a_whole_profile_is_read():
    found = read(
        {
            "lockedRoutingStrategy": "random",
            "defaultProfile": "p",
            "profiles": {
                "p": {
                    "routingStrategy": " least-latency ",
                    "requestsPerSecond": 50,
                    "wakeWaitSeconds": 30,
                    "routingConfig": {"promptTokensGte": 1, "maxTokensLt": 9, "loadBalance": {"imbalanceMinGap": 3}},
                }
            },
        }
    )
    kept = found.profiles["p"]
    assert (found.locked_strategy, found.default_profile) == ("random", "p")
    assert (kept.strategy, kept.requests_per_second, kept.wake_wait_s) == ("least-latency", 50, 30.0)
    assert kept.hints == Hints(prompt_tokens_gte=1, max_tokens_lt=9)
    assert kept.knobs.load_balance.imbalance_min_gap == 3


@pytest.mark.acceptance("GW-34")
def test_values_that_cannot_be_meant_count_as_absent():
    found = read(
        {
            "lockedRoutingStrategy": 5,
            "defaultProfile": [],
            "profiles": {
                "default": {
                    "routingStrategy": 7,
                    "requestsPerSecond": -1,
                    "requestsPerSecondPerReplica": "10",
                    "requestsInflight": True,
                    "wakeWaitSeconds": -3,
                    "routingConfig": {"promptTokensGte": "x", "loadBalance": {"kvCriticalFree": 2}},
                },
                "broken": 5,
            },
        }
    )
    assert found == ModelConfig(profiles={"default": Profile("default")})


@pytest.mark.parametrize("cap", [{"requestsPerSecondPerReplica": 0.5}, {"requestsInflight": 3}])
def test_a_cap_for_each_replica_makes_it_least_request(cap):
    assert strategy_of(profile(routingStrategy="throughput", **cap)) == "least-request"


@pytest.mark.parametrize("cap", [{"requestsPerSecondPerReplica": 0}, {"requestsInflight": 0}, {"requestsPerSecond": 5}])
def test_a_cap_that_is_off_leaves_the_strategy(cap):
    assert strategy_of(profile(routingStrategy="random", **cap)) == "random"


def test_equal_texts_are_one_value():
    parse = reader(Knobs())
    text = orjson.dumps(profile(routingStrategy="random")).decode()
    assert parse(text) is parse(str(text.encode(), "ascii"))
    assert parse("{") is None


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["profiles", "default", "routingConfig", "requestsInflight", "lockedRoutingStrategy", "vtc"]), x
)))  # fmt: skip
def test_any_json_is_read_or_ignored(document):
    assert isinstance(read(document), ModelConfig | None)


# --- which profile

TWO = {"profiles": {"default": {"routingStrategy": "least-latency"}, "batch": {"routingStrategy": "random"}}}


@pytest.mark.acceptance("GW-26")
@pytest.mark.parametrize(
    ("config", "headers", "strategy"),
    [
        pytest.param(TWO, {}, "least-latency", id="none named"),
        pytest.param(TWO, {"config_profile": "batch"}, "random", id="one named"),
        pytest.param(TWO, {"config_profile": "  batch "}, "random", id="blanks around"),
        pytest.param(TWO, {"config_profile": "no-such"}, "least-latency", id="unknown"),
        pytest.param(TWO | {"defaultProfile": "batch"}, {}, "random", id="another default"),
        pytest.param(TWO | {"defaultProfile": "gone"}, {}, "least-latency", id="a default that is not there"),
        pytest.param({"profiles": {"x": {"routingStrategy": "random"}}}, {}, "throughput", id="no default at all"),
        pytest.param({"profiles": {"default": {}}}, {}, "throughput", id="a profile without strategy"),
        pytest.param(TWO, {"config_profile": "batch", "routing_strategy": "vtc-basic"}, "vtc-basic", id="header first"),
        pytest.param(None, {"config_profile": "batch"}, "throughput", id="no config"),
    ],
)
def test_the_strategy_is_that_of_the_profile_else_of_the_gateway(config, headers, strategy):
    assert strategy_of(config, **headers) == strategy


@pytest.mark.acceptance("GW-27")
@pytest.mark.parametrize(
    "config",
    [
        {"lockedRoutingStrategy": "random", **TWO},
        {"lockedRoutingStrategy": "random", "profiles": {}},
        {"lockedRoutingStrategy": "random"},
    ],
    ids=["with profiles", "none of them", "without the member"],
)
def test_a_locked_strategy_beats_header_profile_and_default(config):
    assert strategy_of(config, routing_strategy="least-request", config_profile="batch") == "random"


# --- auto

LT, GTE = "promptTokensLt", "promptTokensGte"
A = {"routingConfig": {LT: 100}}
B = {"routingConfig": {LT: 100, "maxTokensLt": 50}}


def auto(profiles, *, prompt_tokens, word="auto", **members):
    """The profile that ``auto`` chooses."""
    request = parsed(
        chat(messages=[{"content": "x" * (4 * prompt_tokens)}], **members), config_profile=word, path="/v1/messages"
    )
    verdict = decided(request, view(model(config={"profiles": profiles})))
    assert isinstance(verdict, Forward), verdict
    return verdict.profile


@pytest.mark.acceptance("GW-31")
@pytest.mark.parametrize("word", ["auto", "AUTO", " Auto "])
def test_auto_takes_the_profile_with_most_hints_that_hold(word):
    profiles = {"A": A, "B": B, "C": {}, "default": {}}
    assert auto(profiles, prompt_tokens=10, max_tokens=20, word=word) == "B"
    assert auto(profiles, prompt_tokens=10, max_tokens=50, word=word) == "A"


@pytest.mark.acceptance("GW-31")
def test_auto_counts_prompts_as_the_models_engines_do():
    """With two bytes a token, which these engines have, 240 bytes are more than a hundred of them."""
    seen = view(model(config={"profiles": {"A": A, "default": {}}}))
    request = parsed(chat(messages=[{"content": "x" * 240}]), config_profile="auto", path="/v1/messages")
    assert decided(request, seen).profile == "A"
    for _ in range(100):
        seen.token_sizes.learn("m", 4000, 2000)
    assert decided(request, seen).profile == "default"


@pytest.mark.acceptance("GW-31")
def test_auto_without_a_fitting_profile_takes_the_default():
    assert auto({"A": A, "default": {}}, prompt_tokens=100, max_tokens=20) == "default"
    assert auto({"A": A}, prompt_tokens=100, max_tokens=20) is None


@pytest.mark.acceptance("GW-32")
def test_a_hint_about_a_length_that_is_not_known_does_not_hold():
    assert auto({"B": B, "default": {}}, prompt_tokens=10) == "default"
    assert auto({"A": A, "default": {}}, prompt_tokens=0) == "default"


@pytest.mark.acceptance("GW-31")
@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({GTE: 5}, {GTE: 4}),
        ({GTE: 5}, {LT: 100}),
        ({LT: 50}, {LT: 60}),
        ({LT: 50}, {"maxTokensGte": 1}),
        ({"maxTokensGte": 5}, {"maxTokensGte": 4}),
        ({"maxTokensLt": 50}, {"maxTokensLt": 60}),
        ({GTE: 10}, {GTE: 9}),
    ],
)
def test_equally_many_hints_are_settled_by_the_narrower(better, worse):
    for names in (("a", "z"), ("z", "a")):
        profiles = {names[0]: {"routingConfig": better}, names[1]: {"routingConfig": worse}}
        assert auto(profiles, prompt_tokens=10, max_tokens=20) == names[0]


@pytest.mark.acceptance("GW-31")
def test_equal_hints_are_settled_by_name():
    assert auto({"z": A, "b": A, "y": A}, prompt_tokens=10) == "b"


def test_an_explicit_profile_is_not_told_back():
    assert auto({"A": A}, prompt_tokens=10, word="A") is None
