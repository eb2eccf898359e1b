"""``vtc-basic``: users who took many tokens of late go to other Pods than those who took few."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aibrix_operator.gateway.strategies import choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage

if TYPE_CHECKING:
    from aibrix_operator.gateway.knobs import VtcKnobs
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

NO_USER: Final = "no_user"
"""Fallback: the request names no user, and fairness needs one."""
LEAST_BUCKET: Final = 1000.0
OUTPUT_PER_INPUT: Final = 1.5
"""Estimate of an answer's tokens, until the engine says them."""
NOISE: Final = 0.1
MOST_USERS: Final = 100_000
_SLICES: Final = 60
"""The sliding window moves in as many steps."""
_MEMO: Final = "vtc-basic"


class Tracker:
    """Weighted tokens of each user in the last ``window_s`` seconds; at most 100,000 users, the idlest go first."""

    def __init__(self, window_s: float) -> None:
        self._slice_s = window_s / _SLICES
        self._users: OrderedDict[str, dict[int, float]] = OrderedDict()
        """User → slice of time → tokens, oldest first."""

    def tokens(self, user: str, now_s: float) -> float:
        """Never below 0."""
        slices = self._users.get(user)
        if slices is None:
            return 0.0
        self._forget_old(slices, now_s)
        if not slices:
            del self._users[user]
        return max(0.0, sum(slices.values()))

    def add(self, user: str, amount: float, now_s: float) -> None:
        """A charge of now."""
        slices = self._users.setdefault(user, {})
        self._forget_old(slices, now_s)
        place = int(now_s // self._slice_s)
        slices[place] = slices.get(place, 0.0) + amount
        self._users.move_to_end(user)
        if len(self._users) > MOST_USERS:
            self._users.popitem(last=False)

    def correct(self, user: str, amount: float, charged_s: float) -> None:
        """Add to a charge of then, which may have left the window since."""
        slices = self._users.get(user, {})
        place = int(charged_s // self._slice_s)
        if place in slices:
            slices[place] += amount

    def _forget_old(self, slices: dict[int, float], now_s: float) -> None:
        oldest = int(now_s // self._slice_s) - _SLICES
        for place in [place for place in slices if place <= oldest]:
            del slices[place]


class VtcBasic:
    """Candidates are ordered by their keys; a user's place among them grows by one with each bucket of tokens.

    A request is charged an estimate when it is placed and what the engine said when it ends. Profiles with the same
    window share their tracker; another window has its own. Counts are this replica's.
    """

    name = "vtc-basic"
    lower_is_better = True

    def __init__(self) -> None:
        self._trackers: dict[float, Tracker] = {}

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        if ask.request.user is None:
            return Pick(choosing.draw(ask), NO_USER)
        return choosing.lowest(ask, self.scores(ask))

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """Distance from the user's place, the Pod's load, and a little noise against everybody choosing alike."""
        user = ask.request.user
        if user is None:
            return [None] * len(ask.candidates)
        knobs = ask.knobs.vtc
        bucket = max(LEAST_BUCKET, (knobs.tracker_min_tokens + knobs.tracker_max_tokens) / 2)
        place = min(self.tracker(knobs).tokens(user, ask.now_s) / bucket, len(ask.candidates) - 1)
        order = sorted(range(len(ask.candidates)), key=lambda index: ask.candidates[index].key)
        scores: list[float | None] = [None] * len(ask.candidates)
        for rank, index in enumerate(order):
            load = min(ask.loads.count(ask.candidates[index]) / knobs.max_pod_load, 1.0)
            noise = ask.random.random() * NOISE
            scores[index] = knobs.fairness_weight * abs(rank - place) + knobs.utilization_weight * load + noise
        return scores

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """Charge the estimate."""
        user = ask.request.user
        if user is None:
            return
        knobs = ask.knobs.vtc
        prompt = ask.request.prompt_tokens
        estimate = _weighted(knobs, prompt, math.ceil(OUTPUT_PER_INPUT * prompt))
        tracker = self.tracker(knobs)
        tracker.add(user, estimate, ask.now_s)
        ask.request.memo[_MEMO] = (tracker, knobs, estimate, ask.now_s)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """Put real usage in the place of the estimate, as of the time when it was charged."""
        charged = request.memo.pop(_MEMO, None)
        if charged is None or request.user is None:
            return
        tracker, knobs, estimate, at_s = charged
        real = 0.0 if usage is None else _weighted(knobs, usage.prompt, usage.completion)
        tracker.correct(request.user, real - estimate, at_s)

    def tracker(self, knobs: VtcKnobs) -> Tracker:
        """The one of profiles with this window."""
        tracker = self._trackers.get(knobs.tracker_window_s)
        if tracker is None:
            tracker = self._trackers[knobs.tracker_window_s] = Tracker(knobs.tracker_window_s)
        return tracker


def _weighted(knobs: VtcKnobs, prompt: int, completion: int) -> float:
    return knobs.input_token_weight * prompt + knobs.output_token_weight * completion
