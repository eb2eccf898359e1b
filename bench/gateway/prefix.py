"""What the prefix table costs: ``python -m bench.gateway.prefix``.

16 Pods and a table that is full of prompts that one Pod each has. Matched are prompts of 256 blocks, of which all Pods
have the first 64 and each has another part of the rest, so that a match drops one Pod after the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from statistics import median
from time import thread_time_ns

from aibrix_operator.gateway.prefix_blocks import PrefixSettings, hashes_of, root
from aibrix_operator.gateway.prefix_table import PrefixTable
from aibrix_operator.gateway.view import Endpoint

PODS = 16
BLOCKS = 256
NOW_S = 1_800_000_000.0
ROUNDS = 5


def _us(step: Callable[[int], object], times: int) -> float:
    """Microseconds of CPU of one step, the median of rounds."""
    rounds = []
    for number in range(ROUNDS):
        start = thread_time_ns()
        for index in range(times):
            step(number * times + index)
        rounds.append((thread_time_ns() - start) / times / 1000)
    return median(rounds)


def figures() -> dict[str, float]:
    """What was measured → microseconds."""
    random = Random(1)
    settings = PrefixSettings()
    table = PrefixTable(settings)
    pods = [Endpoint("m", "ns", f"p{i}", f"u{i}", f"10.0.0.{i}:8000") for i in range(PODS)]

    def fresh(count: int) -> list[int]:
        return [random.getrandbits(64) for _ in range(count)]

    for start in range(0, settings.capacity, BLOCKS):
        table.add("m", pods[start % PODS], fresh(BLOCKS), NOW_S + start / 1000)
    now_s = NOW_S + settings.capacity / 1000
    known = [fresh(BLOCKS) for _ in range(50)]
    for prompt in known:
        for place, pod in enumerate(pods):
            table.add("m", pod, prompt[: 64 + (BLOCKS - 64) * place // (PODS - 1)], now_s)
    everywhere = fresh(BLOCKS)
    for pod in pods:
        table.add("m", pod, everywhere, now_s)
    new = [fresh(BLOCKS) for _ in range(ROUNDS * 200)]
    first = root("m", settings)
    text = "".join(random.choice("abcdefgh ") for _ in range(BLOCKS * settings.block_bytes))
    gc.disable()
    return {
        "match 256 blocks, 16 Pods, each with another part": _us(
            lambda i: table.match("m", pods, known[i % len(known)], now_s), 2000
        ),
        "match 256 blocks, 16 Pods, all with all of it": _us(lambda _: table.match("m", pods, everywhere, now_s), 2000),
        "match 256 blocks, 16 Pods, none with any": _us(
            lambda i: table.match("m", pods, new[i % len(new)], now_s), 2000
        ),
        "add 256 blocks that the Pod has": _us(
            lambda i: table.add("m", pods[-1], known[i % len(known)], now_s + 1), 1000
        ),
        "add 256 new blocks, as many driven out": _us(lambda i: table.add("m", pods[i % PODS], new[i], now_s + 2), 100),
        "hash 256 blocks of 128 bytes": _us(lambda _: hashes_of(text, first, settings), 200),
    }


def main() -> None:
    """Print them."""
    for name, us in figures().items():
        print(f"{us:9.1f} µs  {name}")


if __name__ == "__main__":
    main()
