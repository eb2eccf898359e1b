"""When the loop runs next, how long one step may take, and how often a key must be written anew. Pure: what is random
is drawn by the caller, in [0, 1).
"""

from __future__ import annotations

JITTER = 0.1
MOST_BACKOFF_S = 60.0


def first_delay_s(period_s: float, drawn: float) -> float:
    """In [0, period/2): replicas that start together do not pull together."""
    return drawn * period_s / 2


def next_interval_s(period_s: float, failures: int, drawn: float) -> float:
    """From one cycle to the next, after ``failures`` failed cycles in a row.

    period ± 10 % after success; after each failure twice the last, up to 60 s or the period, whichever is more; and
    the same jitter, so that replicas do not come back in step.
    """
    most = max(MOST_BACKOFF_S, period_s)
    # 2.0**1024 is no float any more, and long before that the cap holds.
    base = min(period_s * 2.0 ** min(failures, 64), most)
    return max(base * (1 - JITTER + 2 * JITTER * drawn), period_s / 2)


def backoff_s(period_s: float, failures: int) -> float:
    """How much later than after success the next cycle comes, jitter apart."""
    return min(period_s * 2.0 ** min(failures, 64), max(MOST_BACKOFF_S, period_s)) - period_s


def step_budget_s(left_s: float, steps_left: int) -> float:
    """The fair share of one pull or push in what is left of the cycle. What a step does not need, later ones may."""
    return max(left_s, 0.0) / max(steps_left, 1)


def refresh_interval_s(record_ttl_s: float, life_s: float, period_s: float) -> float | None:
    """After so long a live key is written anew; None when its TTL outlasts its entity anyway.

    Half a TTL must not have passed when the *next* cycle comes, or a failed cycle could let the key expire.
    """
    if record_ttl_s >= life_s:
        return None
    return max(record_ttl_s / 2 - period_s * (1 + JITTER), 0.0)
