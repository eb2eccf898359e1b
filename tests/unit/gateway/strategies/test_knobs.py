"""Figures of strategies from the environment and from profiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway.knobs import AutoBlendKnobs, Knobs, LoadBalanceKnobs, PrebleKnobs, TopKKnobs, VtcKnobs


def test_every_variable_is_read():
    knobs = Knobs.from_env(
        {
            "AIBRIX_LOAD_BALANCE_IMBALANCE_FACTOR": "1.5",
            "AIBRIX_LOAD_BALANCE_IMBALANCE_MIN_GAP": "16",
            "AIBRIX_LOAD_BALANCE_QUEUED_WEIGHT": "0.5",
            "AIBRIX_LOAD_BALANCE_KV_PRESSURE_ALPHA": "3",
            "AIBRIX_LOAD_BALANCE_KV_CRITICAL_FREE": "0.05",
            "AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR": "2",
            "AIBRIX_ROUTING_AUTO_BLEND_LOAD_BALANCE_WEIGHT": "0",
            "AIBRIX_ROUTING_AUTO_BLEND_LEAST_REQUEST_WEIGHT": "2",
            "AIBRIX_ROUTING_AUTO_BLEND_PREFIX_CACHE_WEIGHT": "7",
            "AIBRIX_ROUTING_AUTO_BLEND_PREFIX_CACHE_LOAD_BALANCE_WEIGHT": "3",
            "AIBRIX_ROUTING_AUTO_BLEND_LOAD_SCORER": "load-balance",
            "AIBRIX_ROUTING_LEAST_REQUEST_TOP_K": "3",
            "AIBRIX_ROUTING_LEAST_REQUEST_TOP_K_EPSILON": "2",
            "AIBRIX_ROUTING_LEAST_REQUEST_TOP_K_RAMP_WINDOW": "1m",
            "AIBRIX_ROUTER_VTC_TOKEN_TRACKER_WINDOW_SIZE": "30",
            "AIBRIX_ROUTER_VTC_TOKEN_TRACKER_TIME_UNIT": "seconds",
            "AIBRIX_ROUTER_VTC_BASIC_MAX_POD_LOAD": "50",
            "AIBRIX_PREBLE_TARGET_GPU": "A6000",
        }
    )
    assert knobs.load_balance == LoadBalanceKnobs(1.5, 16, 0.5, 3.0, 0.05)
    assert knobs.prefix_cache.standard_deviation_factor == 2.0
    assert knobs.auto_blend == AutoBlendKnobs("load-balance", 0, 2, 7, 3)
    assert knobs.top_k == TopKKnobs(3, 2, 60.0)
    assert knobs.vtc == VtcKnobs(max_pod_load=50.0, tracker_window_s=30.0)
    assert knobs.preble == PrebleKnobs("A6000")


@pytest.mark.acceptance("GW-34")
@pytest.mark.parametrize(
    "config",
    [
        {"loadBalance": {"kvCriticalFree": 2}},
        {"loadBalance": {"kvCriticalFree": "much"}},
        {"loadBalance": {"imbalanceMinGap": 0}},
        {"loadBalance": {"imbalanceMinGap": 1.5}},
        {"loadBalance": {"imbalanceFactor": True}},
        {"loadBalance": [1]},
        {"autoBlend": {"prefixCacheWeight": 0}},
        {"autoBlend": {"loadScorer": "random"}},
        {"preble": {"targetGPU": "H200"}},
        {"vtc": {"tokenTrackerTimeUnit": "fortnights"}},
        {"vtc": {"tokenTrackerWindowSize": -1}},
        {"bucketServe": True, "other": {"x": 1}},
    ],
)
def test_a_bad_value_keeps_the_default(config):
    assert Knobs().with_config(config) == Knobs()


def test_a_profile_changes_what_it_names_and_nothing_else():
    base = Knobs.from_env({"AIBRIX_LOAD_BALANCE_QUEUED_WEIGHT": "0.5"})
    knobs = base.with_config(
        {
            "loadBalance": {"kvPressureAlpha": 1, "kvCriticalFree": 2},
            "vtc": {"tokenTrackerWindowSize": 10, "maxPodLoad": 7},
            "prefixCache": {"standardDeviationFactor": 2},
        }
    )
    assert knobs.load_balance == LoadBalanceKnobs(queued_weight=0.5, kv_pressure_alpha=1.0)
    assert knobs.vtc == VtcKnobs(max_pod_load=7.0, tracker_window_s=600.0)
    assert knobs.prefix_cache.standard_deviation_factor == 2.0
    assert knobs.auto_blend == base.auto_blend


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
GROUPS = st.sampled_from(["loadBalance", "prefixCache", "preble", "vtc", "autoBlend"])
MEMBERS = st.sampled_from(
    ["kvCriticalFree", "targetGPU", "tokenTrackerWindowSize", "tokenTrackerTimeUnit", "loadScorer"]
)


@given(st.dictionaries(GROUPS, JSON | st.dictionaries(MEMBERS, JSON, max_size=3), max_size=4))
def test_no_document_stops_a_model(config):
    knobs = Knobs().with_config(config)
    assert 0 <= knobs.load_balance.kv_critical_free <= 1
    assert knobs.vtc.tracker_window_s > 0


@given(st.text(max_size=12))
def test_no_environment_stops_the_gateway(text):
    knobs = Knobs.from_env(
        {
            "AIBRIX_LOAD_BALANCE_IMBALANCE_MIN_GAP": text,
            "AIBRIX_ROUTING_LEAST_REQUEST_TOP_K": text,
            "AIBRIX_ROUTING_LEAST_REQUEST_TOP_K_RAMP_WINDOW": text,
        }
    )
    assert knobs.load_balance.imbalance_min_gap >= 1
    assert knobs.top_k.k >= 1
    assert knobs.top_k.ramp_window_s >= 0
