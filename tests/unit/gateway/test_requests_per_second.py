"""Rates as requests in a window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway import rates
from aibrix_operator.gateway.profiles import Profile
from aibrix_operator.gateway.verdict import RateLimit


def per_replica(rate, replicas, whole=None):
    return rates.of_profile(Profile("p", requests_per_second=whole, requests_per_second_per_replica=rate), replicas)


@pytest.mark.acceptance("GW-82")
@pytest.mark.parametrize(
    ("rate", "replicas", "expected"),
    [
        (10, 4, RateLimit(40, 1, "40")),
        (10, 8, RateLimit(80, 1, "80")),
        (10, 7, RateLimit(70, 1, "70")),
        (0.5, 1, RateLimit(1, 2, "0.5")),
        (0.18, 1, RateLimit(1, 6, "0.18")),
        (0.18, 6, RateLimit(1, 1, "1")),
        (1.9, 1, RateLimit(1, 1, "1")),
        (0.29, 100, RateLimit(29, 1, "29")),
        (0.1, 1, RateLimit(1, 10, "0.1")),
        (0.1, 3, RateLimit(1, 4, "0.3")),
        (1e-9, 1, RateLimit(1, 3600, "1e-09")),
        (1e-300, 1, RateLimit(1, 3600, "1e-300")),
    ],
)
def test_a_rate_for_each_replica_is_rounded_down(rate, replicas, expected):
    assert per_replica(rate, replicas) == expected


@pytest.mark.acceptance("GW-83")
def test_a_rate_for_each_replica_goes_before_one_for_all():
    assert per_replica(2, 3, whole=100) == RateLimit(6, 1, "6")
    assert per_replica(None, 3, whole=100) == RateLimit(100, 1, "100")
    assert per_replica(None, 3) is None


@given(st.floats(1e-3, 1e4), st.integers(1, 1000))
def test_the_delivered_rate_is_never_above_the_wanted_one(rate, replicas):
    limit = per_replica(rate, replicas)
    assert limit.requests / limit.window_s <= rate * replicas * (1 + 1e-6)
    assert limit.requests >= 1
