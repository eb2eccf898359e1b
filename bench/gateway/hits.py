"""Hits of prefix caches and even work at once: ``python -m bench.gateway.hits --seed 20 --seed 21``.

A simulation. 2,000 sessions begin at random moments; each opens with one of 50 system prompts (Zipf,
exponent 1.0) and grows by an answer and a question with each turn. 8 engines keep blocks of prompts in LRU caches, each
of a quarter of all blocks that occur. The strategies are the gateway's own, with its own table; engines are played.

Hits: blocks of prompts that were in the engine's cache, of all blocks, beside the same figure of one cache with the
room of all eight. Work: prompt tokens that were not in the cache, by engine and in each 10 seconds; the busiest engine
beside the mean of all. The first 10 seconds, when all caches are empty, do not count for the work.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import mean, median
from typing import Annotated

import typer

from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.prefix_blocks import PrefixSettings
from aibrix_operator.gateway.prefix_share import PrefixShare
from aibrix_operator.gateway.prefix_table import PrefixTable
from aibrix_operator.gateway.request import Api, Request
from aibrix_operator.gateway.strategies.base import Ask, Routing
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.strategies.session_affinity import rendezvous
from aibrix_operator.gateway.view import Endpoint, Model

SYSTEM_PROMPTS = 50
WINDOW_S = 10.0
TOKENS_PER_BLOCK = 32
SHARED_AFTER_S = 0.05
"""What one gateway placed is known to the other so much later."""
START_S = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: its prompt's blocks, and how long the engine answers it."""

    at_s: float
    session: int
    blocks: tuple[int, ...]
    runs_s: float


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is played."""

    sessions: int = 2000
    engines: int = 8
    horizon_s: float = 120.0

    def model(self) -> Model:
        """Served by all engines."""
        names = range(self.engines)
        return Model("m", tuple(Endpoint("m", "ns", f"p{i}", f"u{i}", f"10.0.0.{i}:8000") for i in names))


def workload(seed: int, scale: Scale) -> list[Turn]:
    """All requests in their order. Lengths are in tokens, and short last blocks are left out, as in the gateway."""
    random = Random(seed)
    weights = [1 / rank for rank in range(1, SYSTEM_PROMPTS + 1)]
    systems = [_blocks(random, random.uniform(500, 2000)) for _ in weights]
    turns: list[Turn] = []
    for session in range(scale.sessions):
        at_s = random.uniform(0, scale.horizon_s)
        prompt = list(random.choices(systems, weights)[0])
        answer = 0.0
        while at_s < scale.horizon_s:
            prompt += _blocks(random, answer + random.uniform(50, 400))
            answer = random.uniform(100, 500)
            runs_s = answer / 80
            turns.append(Turn(at_s, session, tuple(prompt), runs_s))
            at_s += runs_s + random.expovariate(1 / 5)
    return sorted(turns, key=lambda turn: turn.at_s)


def _blocks(random: Random, tokens: float) -> list[int]:
    return [random.getrandbits(64) for _ in range(round(tokens / TOKENS_PER_BLOCK))]


class Cache:
    """An engine's blocks, of which the one that was used longest ago makes room; of a prompt its end first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def serve(self, blocks: Sequence[int]) -> int:
        """How many of the first blocks it had. Afterwards it has all of them."""
        hits = 0
        while hits < len(blocks) and blocks[hits] in self._blocks:
            hits += 1
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return hits


@dataclass(slots=True)
class Outcome:
    """Of one strategy."""

    engines: int
    blocks: int = 0
    hits: int = 0
    work: dict[int, list[int]] = field(default_factory=dict)
    """Window → uncached tokens of each engine."""

    def add(self, turn: Turn, engine: int, hits: int) -> None:
        self.blocks += len(turn.blocks)
        self.hits += hits
        window = self.work.setdefault(int(turn.at_s // WINDOW_S), [0] * self.engines)
        window[engine] += (len(turn.blocks) - hits) * TOKENS_PER_BLOCK

    @property
    def hit_rate(self) -> float:
        return self.hits / self.blocks

    def unevenness(self) -> list[float]:
        """Of each window after the first: the busiest engine beside the mean."""
        return [max(window) / mean(window) for number, window in sorted(self.work.items()) if number]


class Gateway:
    """One gateway that decides: a table, a book, loads and a random source of its own."""

    def __init__(self, model: Model, text: str, number: int, table_blocks: int) -> None:
        self.now_s = START_S
        self.model = model
        self.loads = Loads()
        self.table = PrefixTable(PrefixSettings(block_bytes=4 * TOKENS_PER_BLOCK, capacity=table_blocks))
        self.share = PrefixShare(self.table, {model.name: model}, lambda: self.now_s)
        self.share.announce_to(lambda: None)
        self.routing: Routing = StrategyBook(prefixes=self.table).compile(text, Knobs())
        self.random = Random(number)

    def place(self, turn: Turn) -> Endpoint:
        """Where it goes."""
        self.now_s = START_S + turn.at_s
        size = self.table.settings.block_bytes
        request = Request("r", Api.CHAT, Api.CHAT.value, self.model.name, prompt_bytes=len(turn.blocks) * size)
        request.memo["prefix-cache"] = turn.blocks[: self.table.settings.most_hashed]
        ask = Ask(request, self.model, self.model.endpoints, self.loads, {}, Knobs(), self.now_s, self.random)
        endpoint = self.routing.pick(ask).endpoint
        self.routing.admitted(ask, endpoint)
        self.loads.add(endpoint)
        return endpoint


def run(
    turns: Sequence[Turn],
    capacity: int,
    model: Model,
    text: str,
    gateways: int = 1,
    *,
    shares: bool = True,
    table_blocks: int | None = None,
) -> Outcome:
    """Play all turns. Each comes to any of ``gateways``; with ``shares`` they tell each other what they placed.

    ``capacity``: blocks of an engine's cache. ``table_blocks``: of a gateway's table; None: as many as all caches hold.
    """
    table_blocks = table_blocks or capacity * len(model.endpoints)
    every = [Gateway(model, text, number, table_blocks) for number in range(gateways)]
    caches = [Cache(capacity) for _ in model.endpoints]
    place_of = {endpoint: place for place, endpoint in enumerate(model.endpoints)}
    random, outcome = Random(1), Outcome(len(model.endpoints))
    running: list[tuple[float, int, int]] = []
    news: list[tuple[float, int]] = []
    for turn in turns:
        while running and running[0][0] <= turn.at_s:
            _, number, engine = heapq.heappop(running)
            every[number].loads.remove(model.endpoints[engine])
        while shares and news and news[0][0] <= turn.at_s:
            _tell(every, heapq.heappop(news)[1])
        number = random.randrange(gateways)
        engine = place_of[every[number].place(turn)]
        heapq.heappush(running, (turn.at_s + turn.runs_s, number, engine))
        if gateways > 1:
            heapq.heappush(news, (turn.at_s + SHARED_AFTER_S, number))
        outcome.add(turn, engine, caches[engine].serve(turn.blocks))
    return outcome


def _tell(every: Sequence[Gateway], number: int) -> None:
    news = every[number].share.take_news(100_000)
    told = every[number].share.encode(news.updated) if news is not None else {}
    for gateway in every:
        if gateway is not every[number]:
            gateway.now_s = every[number].now_s
            for entity, data in told.items():
                gateway.share.apply_remote(entity, data)
            gateway.share.on_sync_end()


def rendezvous_hashing(turns: Sequence[Turn], capacity: int, model: Model) -> Outcome:
    """Each session at the engine that its name hashes to."""
    caches = {endpoint: Cache(capacity) for endpoint in model.endpoints}
    outcome = Outcome(len(model.endpoints))
    for turn in turns:
        endpoint = rendezvous(f"session-{turn.session}", model.endpoints)
        outcome.add(turn, model.endpoints.index(endpoint), caches[endpoint].serve(turn.blocks))
    return outcome


def pooled(turns: Sequence[Turn], engines: int) -> tuple[float, int]:
    """The hit rate of one cache as big as all engines' together, and the blocks of one engine's cache."""
    capacity = len({block for turn in turns for block in turn.blocks}) // 4
    cache = Cache(capacity * engines)
    hits = sum(cache.serve(turn.blocks) for turn in turns)
    return hits / sum(len(turn.blocks) for turn in turns), capacity


def play(seed: int, scale: Scale) -> tuple[float, dict[str, Outcome]]:
    """The pooled cache's hit rate, and what each strategy came to."""
    turns, model = workload(seed, scale), scale.model()
    rate, capacity = pooled(turns, scale.engines)
    outcomes = {text: run(turns, capacity, model, text) for text in ("random", "least-request")}
    outcomes["plain HRW of the session"] = rendezvous_hashing(turns, capacity, model)
    for text in ("prefix-cache", "prefix-balance"):
        outcomes[text] = run(turns, capacity, model, text)
        outcomes[f"{text}, two gateways"] = run(turns, capacity, model, text, 2)
    outcomes["prefix-balance, two that share nothing"] = run(turns, capacity, model, "prefix-balance", 2, shares=False)
    standard = PrefixSettings().capacity
    small = run(turns, capacity, model, "prefix-balance", table_blocks=standard)
    outcomes[f"prefix-balance, table of {standard:,} blocks"] = small
    return rate, outcomes


def main(
    seed: Annotated[list[int], typer.Option(help="Repeatable; the table tells of all of them.")],
) -> None:
    """Print the table."""
    of_pooled: dict[str, list[float]] = {}
    worst: dict[str, list[float]] = {}
    means: dict[str, list[float]] = {}
    for number in seed:
        rate, outcomes = play(number, Scale())
        print(f"seed {number}: one pooled cache hits {rate:.1%} of all blocks")
        for name, outcome in outcomes.items():
            windows, hits = outcome.unevenness(), outcome.hit_rate / rate
            of_pooled.setdefault(name, []).append(hits)
            means.setdefault(name, []).append(mean(windows))
            worst.setdefault(name, []).append(max(windows))
            print(f"  {name}: {hits:.1%}, windows {' '.join(f'{window:.3f}' for window in windows)}")
    print("| strategy | of the pooled hits: least | median | busiest engine, mean | worst window: median | worst |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, hits_of in of_pooled.items():
        even = f"{mean(means[name]):.3f} | {median(worst[name]):.3f} | {max(worst[name]):.3f}"
        print(f"| `{name}` | {min(hits_of):.1%} | {median(hits_of):.1%} | {even} |")


if __name__ == "__main__":
    typer.run(main)
