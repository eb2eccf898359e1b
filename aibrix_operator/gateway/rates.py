"""A profile's requests per second as whole requests in whole seconds, which is how they are counted."""

from __future__ import annotations

import math
from typing import Final

from aibrix_operator.gateway.profiles import Profile
from aibrix_operator.gateway.verdict import RateLimit

LONGEST_WINDOW_S: Final = 3600
"""A rate below one request in so long counts as one in so long."""
_DIGITS: Final = 9
"""Rates are told in decimals: 0.29 × 100 is 29, not the 28.999… of binary fractions."""


def of_profile(profile: Profile, replicas: int) -> RateLimit | None:
    """The model's limit with ``replicas`` ≥ 1 that are routable. A rate for each of them goes before one for all."""
    if profile.requests_per_second_per_replica is not None:
        return _per_replica(profile.requests_per_second_per_replica, replicas)
    if profile.requests_per_second is not None:
        return RateLimit(profile.requests_per_second, 1, str(profile.requests_per_second))
    return None


def _per_replica(rate: float, replicas: int) -> RateLimit:
    """Rounded so that the delivered rate is never above ``rate × replicas``: the floor, or one request in N seconds."""
    total = round(rate * replicas, _DIGITS)
    if total >= 1:
        requests = math.floor(total)
        return RateLimit(requests, 1, str(requests))
    if total * LONGEST_WINDOW_S <= 1:
        return RateLimit(1, LONGEST_WINDOW_S, f"{rate * replicas:g}")
    return RateLimit(1, math.ceil(round(1 / total, _DIGITS)), f"{total:g}")
