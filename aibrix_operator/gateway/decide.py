"""Where a request goes: pure, one call a request, and no dearer for a model of many Pods than for one of few.

What is asked, in this order, and the first that says no is the answer:

1. is the model known, and has it an engine that is ready?
2. which profile of it does the request get?
3. which strategies choose? Lock > header > profile > the gateway's default.
4. which engines may they choose from? Those that the client's filter leaves; while there are some below the cap on
   requests at once, only those.
5. one of them.

Rates and caps are told with the verdict: whoever keeps the counts charges them, and may know better.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from aibrix_operator.gateway import headers, profiles, rates, refusals, selectors
from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.profiles import Profile
from aibrix_operator.gateway.request import Api, Request
from aibrix_operator.gateway.strategies.base import Ask, Pick
from aibrix_operator.gateway.verdict import Forward, Refuse, Verdict, Wait

if TYPE_CHECKING:
    from aibrix_operator.gateway.strategies.base import Routing
    from aibrix_operator.gateway.view import Endpoint, Model, View

MOST_OTHERS: Final = 15
"""Endpoints told beside the chosen one, where that may turn out to be full."""
WORTH_WAITING: Final = frozenset({"sleeping", "activating", "loading"})
"""States that end in an engine that serves, if nothing goes wrong."""
XDIT: Final = "xdit"
_XDIT_PATHS: Final = {Api.IMAGES: "/generate", Api.VIDEO: "/generatevideo"}


class StrategyBook(Protocol):
    """Knows all strategies, and keeps what it compiled."""

    def compile(self, text: str, knobs: Knobs) -> Routing:
        """Raises ValueError for a text that names none, or a mixture that cannot be."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the whole gateway."""

    default_strategy: str | None = None
    """None: a request that nothing names a strategy for is refused."""
    default_knobs: Knobs = field(default_factory=Knobs)


def decide(
    request: Request, view: View, book: StrategyBook, settings: Settings, now_s: float, random: Random
) -> Verdict:
    """One request's verdict. ``now_s``: Unix seconds. Nothing is changed but ``random``."""
    model = view.models.get(request.model)
    if model is None:
        if view.is_synced:
            return refusals.no_such_model(request.model)
        return refusals.not_read_yet(request.model)
    profile, profile_told = _profile(model, request, view)
    if not model.endpoints:
        return _without_engine(model, profile)
    text = _strategy(model, request, profile, settings)
    if not text:
        return refusals.no_strategy(model.name)
    knobs = settings.default_knobs if profile is None else profile.knobs
    try:
        routing = book.compile(text, knobs)
    except ValueError:
        return refusals.bad_strategy(text)
    candidates = _filtered(model, request)
    if isinstance(candidates, Refuse):
        return candidates
    cap = rps = None
    if profile is not None:
        cap, rps = profile.requests_inflight, rates.of_profile(profile, len(model.endpoints))
    # Counts of other gateways are a moment old: they say where to look first. Who keeps the slots says what is full.
    preferred = candidates if cap is None else _below(candidates, model, view, cap) or candidates
    ask = Ask(request, model, preferred, view.loads, view.metrics, knobs, now_s, random)
    # With one candidate nothing is to be chosen. The strategies hear of it all the same once it is admitted.
    pick = routing.pick(ask) if len(preferred) > 1 else Pick(preferred[0])
    return Forward(
        model=model,
        routing=routing,
        ask=ask,
        strategy=text,
        endpoint=pick.endpoint,
        others=() if cap is None else _others(candidates, pick.endpoint, model, view),
        rps=rps,
        inflight=cap,
        fallback=pick.fallback,
        profile=profile_told,
        path=_engine_path(model, request),
    )


def _profile(model: Model, request: Request, view: View) -> tuple[Profile | None, str | None]:
    """The profile, and its name where the client left the choice to us."""
    config = model.config
    if config is None:
        return None, None
    name = request.headers.get(headers.CONFIG_PROFILE, "")
    if name.lower() == profiles.AUTO:
        # A request without a routing text (audio, say) has a prompt all the same: its length is not known.
        prompt_tokens = view.token_sizes.tokens(request.model, request.prompt_bytes) or None
        profile = config.by_hints(prompt_tokens, request.max_tokens) or config.default()
        return profile, profile.name if profile is not None else None
    return config.profiles.get(name) or config.default(), None


def _without_engine(model: Model, profile: Profile | None) -> Verdict:
    standing = model.standing
    if standing is None:
        return refusals.no_pods(model.name)
    refuse = refusals.not_routable(model.name, standing)
    if profile is not None and profile.wake_wait_s > 0 and standing.state in WORTH_WAITING:
        return Wait(model, refuse, profile.wake_wait_s)
    return refuse


def _strategy(model: Model, request: Request, profile: Profile | None, settings: Settings) -> str | None:
    if model.config is not None and model.config.locked_strategy:
        return model.config.locked_strategy
    asked = request.headers.get(headers.STRATEGY)
    if asked:
        return asked
    if profile is not None and profile.strategy:
        return profile.strategy
    return settings.default_strategy


def _filtered(model: Model, request: Request) -> tuple[Endpoint, ...] | Refuse:
    """The model's endpoints, or those of them that the client's filter leaves; never none."""
    text = request.headers.get(headers.EXTERNAL_FILTER)
    if not text:
        return model.endpoints
    try:
        selector = selectors.parse(text)
    except selectors.SelectorError as error:
        return refusals.bad_filter(str(error))
    left = tuple(endpoint for endpoint in model.endpoints if selector.matches(endpoint.labels))
    return left or refusals.nothing_left(model.name)


def _below(candidates: tuple[Endpoint, ...], model: Model, view: View, cap: int) -> tuple[Endpoint, ...]:
    """Candidates that run fewer than ``cap`` requests, as far as this gateway knows."""
    board = view.loads.board(model)
    if board.most < cap:
        return candidates
    if board.least >= cap:
        return ()
    return tuple(endpoint for endpoint in candidates if board.count(endpoint) < cap)


def _others(candidates: tuple[Endpoint, ...], chosen: Endpoint, model: Model, view: View) -> tuple[Endpoint, ...]:
    """The least loaded of the other candidates, least first."""
    if candidates is model.endpoints:
        best = view.loads.board(model).best(MOST_OTHERS + 1)
    else:
        best = heapq.nsmallest(MOST_OTHERS + 1, candidates, key=view.loads.count)
    return tuple(endpoint for endpoint in best if endpoint is not chosen)[:MOST_OTHERS]


def _engine_path(model: Model, request: Request) -> str | None:
    """xDiT's own paths, with the client's query."""
    if model.engine != XDIT or request.api not in _XDIT_PATHS:
        return None
    _, mark, query = request.path.partition("?")
    return _XDIT_PATHS[request.api] + mark + query
