"""The metrics page: AIBrix's names and labels, and no label that a client made up."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from traffic_builders import endpoint, forward, granted, request

from aibrix_operator.gateway.accounting import account
from aibrix_operator.gateway.leases import Leases
from aibrix_operator.gateway.limits.limiter import Limit
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.metric_rows import TIME_BOUNDS_MS, TOKEN_BOUNDS, TOTAL_BOUNDS_MS, Buckets
from aibrix_operator.gateway.metrics import Metrics
from aibrix_operator.gateway.prefix_figures import PrefixFigures
from aibrix_operator.gateway.prefix_metrics import PrefixPage
from aibrix_operator.gateway.settlement import Ended
from aibrix_operator.gateway.view import Endpoint, Model

LABELS = {"roleset-name": "rs", "role-name": "decode", "role-replica-index": "2"}
POD = Endpoint("m", "team", "p0", "uid-0", "10.0.0.1:8000", labels=LABELS)


class Page:
    def __init__(self, **options):
        self.now_s = 0.0
        self.models = {"m": Model("m", (POD,))}
        self.metrics = Metrics(lambda: self.models, "gw-0", clock=lambda: self.now_s, **options)
        self.leases = Leases(Loads(), 30)

    def admit(self, pod=POD, decision_s=0.00004):
        lease = self.leases.open(forward(pod), granted(self.leases.new_id()), request(stream=True), 0)
        self.metrics.admitted(lease, decision_s)
        return lease

    def end(self, lease, status=200, first_byte_s=0.05, duration_s=1.05, **fields):
        told = Ended(lease.id, status, frozenset(), duration_s, first_byte_s, **fields)
        self.metrics.ended(lease, told, account(told, lease.request))

    def samples(self):
        text = generate_latest(self.metrics.registry).decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name, **labels):
        return self.samples()[name, frozenset({"gateway_pod": "gw-0", "model": "m", **labels}.items())]


USED = {"prompt_tokens": 255, "completion_tokens": 101, "total_tokens": 356}
MODEL = frozenset({"model", "gateway_pod"})
PER_POD = MODEL | {"namespace", "pod", "engine_type", "roleset", "role", "role_replica_index"}


@pytest.mark.acceptance("GW-118")
@pytest.mark.parametrize("by_pod", [False, True], ids=["by-model", "by-pod"])
def test_names_and_labels_are_upstreams(by_pod):
    page = Page(by_pod=by_pod)
    page.end(page.admit(), **USED)
    page.metrics.refused("m", 429, 0.0001, Limit.MODEL_RPS)
    shared = PER_POD if by_pod else MODEL
    named = shared | {"pod_name"} if by_pod else shared
    ended = named | {"status", "status_code"}
    bucket = shared | {"bucket"}
    expected = {
        "gateway_request_total": named,
        "gateway_in_flight_requests": {"gateway_pod"},
        "gateway_model_in_flight_requests": MODEL,
        "gateway_request_model_success_total": ended,
        "gateway_request_model_fail_total": ended,
        "gateway_prompt_token_bucket_total": bucket,
        "gateway_completion_token_bucket_total": bucket,
        "gateway_input_tokens_total": shared,
        "gateway_output_tokens_total": shared,
        "gateway_requests_with_usage_total": shared | {"has_usage"},
        "gateway_first_token_delay_over_1s_total": shared | {"threshold"},
        "gateway_routing_time_bucket_total": bucket,
        "gateway_ttft_bucket_total": bucket,
        "gateway_tpot_bucket_total": bucket,
        "gateway_decode_time_bucket_total": bucket,
        "gateway_total_time_bucket_total": bucket,
        "model_replicas": MODEL,
        "aibrix_gateway_requests_total": {"model"},
        "aibrix_gateway_limit_refusals_total": {"model", "limit"},
        "aibrix_gateway_leases_expired_total": set(),
        "aibrix_gateway_unknown_leases_total": set(),
    }
    for name in ("decision", "time_to_first_byte", "request_duration"):
        expected |= {f"aibrix_gateway_{name}_seconds_bucket": {"model", "le"}}
        expected |= {f"aibrix_gateway_{name}_seconds_{part}": {"model"} for part in ("sum", "count")}
    found = {}
    for name, labels in page.samples():
        found.setdefault(name, {key for key, _ in labels})
    assert found == {name: set(labels) for name, labels in expected.items()}


def test_a_pods_labels_are_those_of_its_roles():
    page = Page(by_pod=True)
    page.end(page.admit(), **USED)
    labels = {"namespace": "team", "pod": "p0", "engine_type": "vllm", "role_replica_index": "2"}
    assert page.value("gateway_request_total", roleset="rs", role="decode", pod_name="p0", **labels) == 1


@pytest.mark.acceptance("GW-118")
def test_buckets_hold_their_lower_bound_and_not_their_upper():
    tokens, times, total = Buckets(TOKEN_BOUNDS, ""), Buckets(TIME_BOUNDS_MS, "ms"), Buckets(TOTAL_BOUNDS_MS, "ms")

    def names(buckets, *values):
        out = []
        for value in values:
            buckets.counts = [0] * len(buckets.counts)
            buckets.add(value)
            out.append(buckets.names[buckets.counts.index(1)])
        return out

    assert names(tokens, 0, 255, 256, 32767, 32768) == ["0-256", "0-256", "256-512", "16384-32768", "32768+"]
    assert names(times, 0.5, 1, 4999.9, 5000) == ["0-1ms", "1-2ms", "2000-5000ms", "5000ms+"]
    assert names(total, 99, 60000) == ["0-100ms", "60000ms+"]
    assert len(tokens.names) == 9
    assert times.names[5:7] == ("20-50ms", "50-100ms")


@pytest.mark.acceptance("GW-118")
@pytest.mark.parametrize("by_pod", [False, True], ids=["by-model", "by-pod"])
def test_the_alias_by_model_equals_the_sum(by_pod):
    page = Page(by_pod=by_pod)
    other = endpoint("p1")
    for pod in (POD, POD, other):
        page.admit(pod)
    page.metrics.refused("m", 503, 0.0001)
    page.metrics.refused("m", 401, 0.0001)
    samples = page.samples()
    totals = [value for (name, _), value in samples.items() if name == "gateway_request_total"]
    assert len(totals) == (3 if by_pod else 1)
    assert samples["aibrix_gateway_requests_total", frozenset({("model", "m")})] == sum(totals) == 5


def test_a_request_is_in_flight_from_its_admission_to_its_end():
    page = Page()
    ends, expires, stays = (page.admit() for _ in range(3))
    page.end(ends, **USED)
    page.metrics.expired(expires)
    assert page.value("gateway_model_in_flight_requests") == 1
    assert page.value("gateway_request_model_success_total", status="gateway_request_success", status_code="200") == 1
    assert page.value("gateway_request_model_fail_total", status="lease_expired", status_code="500") == 1
    page.end(stays, 500)
    assert page.value("gateway_model_in_flight_requests") == 0
    assert page.value("gateway_request_model_fail_total", status="response_headers_fail", status_code="500") == 1


def test_tokens_are_those_that_engines_told():
    page = Page()
    page.end(page.admit(), **USED)
    page.end(page.admit(), response_bytes=4000)
    assert page.value("gateway_input_tokens_total") == 255
    assert page.value("gateway_output_tokens_total") == 101
    assert page.value("gateway_completion_token_bucket_total", bucket="0-256") == 1
    assert page.value("gateway_requests_with_usage_total", has_usage="true") == 1
    assert page.value("gateway_requests_with_usage_total", has_usage="false") == 1


def test_times_are_counted_in_buckets_and_in_histograms():
    page = Page()
    page.end(page.admit(decision_s=0.00004), first_byte_s=1.5, duration_s=3.5, **USED)
    assert page.value("gateway_routing_time_bucket_total", bucket="0-1ms") == 1
    assert page.value("gateway_ttft_bucket_total", bucket="1000-2000ms") == 1
    assert page.value("gateway_decode_time_bucket_total", bucket="2000-5000ms") == 1
    assert page.value("gateway_tpot_bucket_total", bucket="20-50ms") == 1
    assert page.value("gateway_total_time_bucket_total", bucket="1000-5000ms") == 1
    assert page.value("gateway_first_token_delay_over_1s_total", threshold="1") == 1
    samples = page.samples()

    def at_most(name, bound):
        return samples[f"aibrix_gateway_{name}_seconds_bucket", frozenset({"model": "m", "le": bound}.items())]

    assert [at_most("decision", bound) for bound in ("2.5e-05", "5e-05", "+Inf")] == [0, 1, 1]
    assert [at_most("time_to_first_byte", bound) for bound in ("1.0", "2.5")] == [0, 1]
    assert samples["aibrix_gateway_request_duration_seconds_sum", frozenset({("model", "m")})] == 3.5


def test_an_answer_without_a_first_byte_has_a_duration_and_no_other_time():
    page = Page()
    page.end(page.admit(), 503, first_byte_s=None)
    names = {name for name, labels in page.samples() if dict(labels).get("model") == "m"}
    assert "gateway_total_time_bucket_total" in names
    assert not names & {"gateway_ttft_bucket_total", "gateway_decode_time_bucket_total", "gateway_tpot_bucket_total"}


def test_what_clients_make_up_becomes_no_label():
    page = Page()
    for n in range(1000):
        page.metrics.refused(f"made-up-{n}", 400, 0.0001)
    models = {dict(labels).get("model") for _, labels in page.samples()}
    assert models == {None, "m", "unknown"}
    assert page.value("gateway_request_model_fail_total", model="unknown", status="request_body_fail",
                      status_code="400") == 1000  # fmt: skip


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        pytest.param((401, 0.0, None), "request_headers_fail", id="key"),
        pytest.param((429, 0.0, Limit.RPM), "request_headers_fail", id="rpm"),
        pytest.param((429, 0.0, Limit.TPM), "request_headers_fail", id="tpm"),
        pytest.param((429, 0.0, Limit.INFLIGHT), "request_body_fail", id="in-flight"),
        pytest.param((400, 0.0), "request_body_fail", id="body"),
        pytest.param(
            (503, 0.0, None, "aibrix_gateway_server_shutdown"), "aibrix_gateway_server_shutdown", id="shutdown"
        ),
    ],
)
def test_a_refusal_fails_in_the_phase_that_upstream_would_name(refusal, status):
    page = Page()
    page.metrics.refused("m", *refusal)
    assert page.value("gateway_request_model_fail_total", status=status, status_code=str(refusal[0])) == 1


def test_figures_of_a_model_that_is_gone_go_with_its_last_request():
    page = Page()
    lease = page.admit()
    page.models = {}
    assert page.value("gateway_model_in_flight_requests") == 1
    page.end(lease, **USED)
    assert not [labels for _, labels in page.samples() if ("model", "m") in labels]


def test_figures_of_a_pod_that_is_gone_stay_long_enough_to_be_scraped():
    page = Page(by_pod=True)
    page.end(page.admit(), **USED)
    page.end(page.admit(endpoint("p1")), **USED)
    page.models = {"m": Model("m", (endpoint("p1"),))}

    def pods():
        return {dict(labels)["pod"] for name, labels in page.samples() if name == "gateway_request_total"}

    page.now_s = 500
    assert pods() == {"p0", "p1"}
    page.now_s = 700
    assert pods() == {"p1"}


def test_why_a_strategy_could_not_choose_is_counted():
    page = Page()
    of = forward(POD, fallback="no_metrics")
    page.metrics.admitted(page.leases.open(of, granted(page.leases.new_id()), request(), 0), 0.0001)
    samples = page.samples()
    key = frozenset({"model": "m", "reason": "no_metrics"}.items())
    assert samples["aibrix_gateway_strategy_fallbacks_total", key] == 1


@pytest.mark.acceptance("GW-118")
def test_prefix_metrics_have_upstreams_names_and_labels_and_go_with_their_model():
    page = Page()
    figures = PrefixFigures()
    page.metrics.registry.register(PrefixPage(figures, lambda: page.models))
    figures.decided("m", 66, is_any_matched=True)
    figures.decided("gone", 0, is_any_matched=False)
    samples = page.samples()

    def value(name, **labels):
        return samples[f"aibrix_prefix_cache_{name}", frozenset(labels.items())]

    assert value("routing_decisions_total", model="m", match_percent_bucket="51-75", using_kv_sync="false") == 1
    assert value("indexer_status", model="m", indexer_type="local") == 1
    assert value("routing_selection_total", selection="prefix_match") == 1
    assert value("routing_selection_total", selection="least_request_fallback") == 1
    assert value("load_imbalance_total") == 0
    assert not [labels for _, labels in samples if ("model", "gone") in labels]
