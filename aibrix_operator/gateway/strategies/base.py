"""What a routing strategy is, and what it is asked.

A strategy is asked in two steps: ``pick`` or ``scores`` choose and change nothing; ``admitted`` hears where the request
really went, once. Custom strategies are classes found by the entry point group ``aibrix_operator.routing_strategies``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from aibrix_operator.gateway.knobs import Knobs
    from aibrix_operator.gateway.loads import Loads
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint, EngineMetrics, Model

BEFORE: Final = "before"
"""``Request.memo``: a ``Callable[[], Awaitable[None]]`` that a strategy put there while it chose, because what decides
is not at hand. The choice is made again once that was awaited. Only a request's first choice may ask for it."""
FOR_CLIENT: Final = "for-client"
"""``Request.memo``: headers (name → value) that a strategy wants the client to get, put there when the request was
admitted. Names are lower case; those that begin with a colon are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One question: which of ``candidates`` serves ``request``?"""

    request: Request
    model: Model
    candidates: Sequence[Endpoint]
    """Routable and not filtered out; at least one. Shared between requests: never changed in place."""
    loads: Loads
    metrics: Mapping[str, EngineMetrics]
    """``Endpoint.address`` → metrics."""
    knobs: Knobs
    """The profile's ``routingConfig`` over the environment's defaults."""
    now_s: float
    """Unix seconds."""
    random: Random


@dataclass(frozen=True, slots=True)
class Pick:
    """An endpoint, and what else is worth telling."""

    endpoint: Endpoint
    fallback: str | None = None
    """Why the strategy could not choose by its own rule (``no_metrics``, …); counted in a metric."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a finished request. ``is_estimate``: the engine did not say."""

    prompt: int
    completion: int
    total: int
    is_estimate: bool = False


@runtime_checkable
class Strategy(Protocol):
    """Chooses by a rule of its own, and cannot be mixed with others."""

    name: str

    def pick(self, ask: Ask) -> Pick:
        """One of the candidates. Never fails: where its figures are missing it falls back, and says so."""

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """The request goes to ``endpoint``, which may be another than the one picked."""

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """It is over. ``usage`` is None when nothing is charged for it."""


@runtime_checkable
class Scorer(Strategy, Protocol):
    """A strategy that can be weighed against others."""

    lower_is_better: bool

    def scores(self, ask: Ask) -> Sequence[float | None]:
        """One figure a candidate, in their order; None where it has none. Changes nothing."""


@runtime_checkable
class Routing(Protocol):
    """A strategy text such as ``least-request:2,prefix-cache``, compiled."""

    @property
    def text(self) -> str:
        """As it was written."""
        ...

    def pick(self, ask: Ask) -> Pick:
        """The candidate that its strategies choose together."""

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """Tell every part, in order."""

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """Tell every part, in order."""
