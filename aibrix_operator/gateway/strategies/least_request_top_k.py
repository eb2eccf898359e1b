"""``least-request-top-k``: any of the few least loaded, so that gateways do not all hit one fresh Pod."""

from __future__ import annotations

from collections.abc import Sequence

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick


class LeastRequestTopK(choosing.Stateless):
    """Eligible are those of the first K by requests that have at most ``epsilon`` more than the least loaded.

    A Pod that became ready less than the ramp window ago counts as if it had part of a warm Pod's load: a fresh engine
    has empty caches, and every gateway sees it idle at the same moment.
    """

    name = "least-request-top-k"
    lower_is_better = True

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        eligible = _eligible(ask, counts_with_ramp(ask))
        return Pick(ask.candidates[eligible[int(ask.random.random() * len(eligible))]])

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """Of the eligible alone: requests less a draw from [0, epsilon), so that a blend spreads them too."""
        counts = counts_with_ramp(ask)
        scores: list[float | None] = [None] * len(counts)
        for place in _eligible(ask, counts):
            scores[place] = counts[place] - ask.random.random() * ask.knobs.top_k.epsilon
        return scores


def counts_with_ramp(ask: Ask) -> list[int]:
    """Running requests of each candidate, and for those in their ramp window what is added to them."""
    count = ask.loads.count
    counts = [count(endpoint) for endpoint in ask.candidates]
    window_s = ask.knobs.top_k.ramp_window_s
    since_s = ask.now_s - window_s
    fresh = [place for place, endpoint in enumerate(ask.candidates) if endpoint.ready_since_s > since_s]
    if not fresh or len(fresh) == len(counts):
        return counts
    young = frozenset(fresh)
    warm_least = min(requests for place, requests in enumerate(counts) if place not in young)
    for place in fresh:
        age_s = max(0.0, ask.now_s - ask.candidates[place].ready_since_s)
        counts[place] += round(warm_least * (1 - age_s / window_s))
    return counts


def _eligible(ask: Ask, counts: Sequence[int]) -> list[int]:
    """Places of the eligible candidates. Who of equals is among the first K is drawn."""
    knobs = ask.knobs.top_k
    highest = min(counts) + knobs.epsilon
    near = [place for place, requests in enumerate(counts) if requests <= highest]
    if len(near) <= knobs.k:
        return near
    ask.random.shuffle(near)  # a list of ours; sorting is stable, so equals stay shuffled
    near.sort(key=counts.__getitem__)
    return near[: knobs.k]
