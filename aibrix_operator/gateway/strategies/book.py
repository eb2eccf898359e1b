"""Finds strategies by their names, and compiles strategy texts."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points

from aibrix_operator.gateway.knobs import LOAD_SCORERS, MOST_WEIGHT, AutoBlendKnobs, Knobs
from aibrix_operator.gateway.prefix_blocks import PrefixSettings
from aibrix_operator.gateway.prefix_table import PrefixTable
from aibrix_operator.gateway.sessions import Sessions
from aibrix_operator.gateway.strategies.base import Routing, Scorer, Strategy
from aibrix_operator.gateway.strategies.least_busy_time import LeastBusyTime
from aibrix_operator.gateway.strategies.least_gpu_cache import LeastGpuCache
from aibrix_operator.gateway.strategies.least_kv_cache import LeastKvCache
from aibrix_operator.gateway.strategies.least_latency import LeastLatency
from aibrix_operator.gateway.strategies.least_request import LeastRequest
from aibrix_operator.gateway.strategies.least_request_top_k import LeastRequestTopK
from aibrix_operator.gateway.strategies.least_utilization import LeastUtilization
from aibrix_operator.gateway.strategies.load_balance import LoadBalance
from aibrix_operator.gateway.strategies.prefix_balance import PrefixBalance
from aibrix_operator.gateway.strategies.prefix_cache import PrefixCache
from aibrix_operator.gateway.strategies.prefix_cache_preble import PrefixCachePreble
from aibrix_operator.gateway.strategies.random_choice import RandomChoice
from aibrix_operator.gateway.strategies.routings import Alone, Blend, Part
from aibrix_operator.gateway.strategies.session_affinity import Pins, SessionAffinity
from aibrix_operator.gateway.strategies.throughput import Throughput
from aibrix_operator.gateway.strategies.vtc_basic import VtcBasic

GROUP = "aibrix_operator.routing_strategies"
"""Entry points: each a callable without parameters that makes a ``Strategy``, found by its ``name``."""
MOST_COMPILED = 4096
_LONGEST_KEPT = 512
"""Longer texts are compiled each time: a client that makes them up must not fill the memory."""
_NEVER_BLENDED = frozenset({SessionAffinity.name, PrefixBalance.name})
"""Sessions' scores are 1 and 0, which a load scorer could outvote: they would not stick. prefix-balance weighs work."""
_NEVER_GATED = frozenset({SessionAffinity.name, LeastRequest.name})
"""Sessions stick under load too; and the least loaded are what least-request picks anyway."""


class StrategyError(ValueError):
    """A strategy text, or a custom strategy, that does not work. The message is what the client is told."""


class StrategyBook:
    """All strategies of this gateway. Each is one object, so that all texts that name it share what it learned."""

    def __init__(
        self,
        strategies: Iterable[Strategy] | None = None,
        *,
        prefixes: PrefixTable | None = None,
        pins: Pins | None = None,
    ) -> None:
        """The built-in ones and those of installed packages, or exactly ``strategies``.

        ``prefixes`` and ``pins``: what prompts engines have and where sessions are, where that is shared with others;
        else this book's own.
        """
        if strategies is None:
            prefixes = PrefixTable(PrefixSettings()) if prefixes is None else prefixes
            strategies = [*builtin(prefixes, Sessions() if pins is None else pins), *custom()]
        self._strategies: dict[str, Strategy] = {}
        for strategy in strategies:
            if strategy.name in self._strategies:
                raise StrategyError(f"there are two routing strategies named {strategy.name}")
            self._strategies[strategy.name] = strategy
        self._compiled: dict[tuple[str, AutoBlendKnobs], Routing] = {}

    def names(self) -> tuple[str, ...]:
        """Of all strategies, in order."""
        return tuple(sorted(self._strategies))

    def compile(self, text: str, knobs: Knobs) -> Routing:
        """The routing of ``text`` (``a:2,b``), of which the latest 4096 are kept. StrategyError: it names none."""
        key = (text, knobs.auto_blend)
        routing = self._compiled.get(key)
        if routing is None:
            routing = self._compile(text, knobs.auto_blend)
            if len(text) <= _LONGEST_KEPT:
                if len(self._compiled) >= MOST_COMPILED:
                    del self._compiled[next(iter(self._compiled))]
                self._compiled[key] = routing
        return routing

    def _compile(self, text: str, blend: AutoBlendKnobs) -> Routing:
        named = self._parse(text)
        asked = {name: weight for name, weight in named.items() if weight}
        if not asked:
            raise _wrong(text)
        if len(asked) == 1:
            name = next(iter(asked))
            strategy = self._strategies[name]
            if not isinstance(strategy, Scorer) or not _is_blended(named, blend):
                return Alone(text, strategy, is_gated=name not in _NEVER_GATED)
        parts = [Part(self._scorer(name, text), weight) for name, weight in asked.items()]
        if _is_blended(named, blend):
            weight = blend.load_balance_weight
            if tuple(named) == (PrefixCache.name,):
                parts = [Part(parts[0].scorer, blend.prefix_cache_weight)]
                weight = blend.prefix_cache_load_balance_weight
            if weight and blend.load_scorer in self._strategies:
                parts.append(Part(self._scorer(blend.load_scorer, text), weight, is_asked=False))
        return Blend(text, tuple(parts), self._of_ports(named, blend))

    def _of_ports(self, named: dict[str, int], blend: AutoBlendKnobs) -> Part | None:
        if not _is_blended(named, blend) or not blend.least_request_weight or PrefixCache.name in named:
            return None
        name = LeastRequest.name
        return Part(self._scorer(name, name), blend.least_request_weight, is_asked=False)

    def _scorer(self, name: str, text: str) -> Scorer:
        strategy = self._strategies.get(name)
        if not isinstance(strategy, Scorer):
            raise _wrong(text)
        return strategy

    def _parse(self, text: str) -> dict[str, int]:
        """Name → weight, 0 for those that only opt out of being blended in."""
        named: dict[str, int] = {}
        for entry in text.split(","):
            name, colon, digits = (part.strip() for part in entry.partition(":"))
            if name not in self._strategies or (colon and not (digits.isascii() and digits.isdigit())):
                raise _wrong(text)
            if len(digits) > len(str(MOST_WEIGHT)) or (weight := int(digits or "1")) > MOST_WEIGHT:
                raise _wrong(text)
            named[name] = named.get(name, 0) + weight
        return named


def _is_blended(named: dict[str, int], blend: AutoBlendKnobs) -> bool:
    """Whether a load scorer is added. Naming one, also with weight 0, is the way to choose it or to opt out."""
    if not blend.load_balance_weight or any(name in LOAD_SCORERS for name in named):
        return False
    return not (len(named) == 1 and next(iter(named)) in _NEVER_BLENDED)


def _wrong(text: str) -> StrategyError:
    return StrategyError(f"incorrect routing strategy {text}")


def builtin(prefixes: PrefixTable, pins: Pins) -> list[Strategy]:
    """Those of this package."""
    return [
        RandomChoice(),
        LeastRequest(),
        LeastRequestTopK(),
        Throughput(),
        LeastBusyTime(),
        LeastGpuCache(),
        LeastKvCache(),
        LeastUtilization(),
        LeastLatency(),
        LoadBalance(),
        VtcBasic(),
        PrefixCache(prefixes),
        PrefixCachePreble(prefixes.settings),
        PrefixBalance(prefixes),
        SessionAffinity(pins),
    ]


def custom() -> list[Strategy]:
    """Those of installed packages. StrategyError names the one that does not load: the gateway does not start then."""
    found: list[Strategy] = []
    for point in entry_points(group=GROUP):
        try:
            strategy = point.load()()
        except Exception as error:
            raise StrategyError(f"the routing strategy {point.name} ({point.value}) does not load: {error}") from error
        if not isinstance(strategy, Strategy):
            raise StrategyError(f"the routing strategy {point.name} ({point.value}) lacks a part of Strategy")
        found.append(strategy)
    return found
