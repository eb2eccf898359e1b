"""What an engine holds on its GPUs: awake from one reading, asleep from the readings around the sleep. Pure.

A figure too small would give a sleeper's memory to its neighbours, so where doubt is possible there is no figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

LEAST_DROP_BYTES = 1 << 30
LEAST_DROP_PERCENT = 40
LEAST_LEAD = 2
"""How many times larger than the next drop on its GPU a drop must be when no pid proves whose it is."""

Held = Mapping[int, Mapping[str, int]]
"""pid → GPU UUID → bytes."""


@dataclass(frozen=True, slots=True)
class Drop:
    """How one process' memory on one GPU changed over the sleep."""

    before_bytes: int
    after_bytes: int

    @property
    def size_bytes(self) -> int:
        """How much was given back; below zero when more is held."""
        return self.before_bytes - self.after_bytes


def peak_bytes(own_pids: Set[int], held: Held) -> int:
    """The most that these processes hold together on one GPU; 0 when NVML names none of them."""
    return max(_sum_by_gpu(own_pids, held).values(), default=0)


def sleeping_bytes(own_pids: Set[int], before: Held, after: Held) -> int | None:
    """What an engine holds asleep on its fullest GPU, or None when that cannot be told for sure.

    1. NVML names processes of the engine: on every GPU that they touch, their sum must have fallen like a sleep. If it
       has not, there is no answer; another process' drop is never taken for theirs.
    2. NVML names none (the driver reports pids of the host): on every GPU, the process with the largest drop is taken
       for the engine's, since only one engine at a time is put to sleep. It must stand out from the next one.
    """
    own_before, own_after = _sum_by_gpu(own_pids, before), _sum_by_gpu(own_pids, after)
    if own_before or own_after:
        gpus = own_before.keys() | own_after.keys()
        return _fullest(_own_bytes(Drop(own_before.get(gpu, 0), own_after.get(gpu, 0))) for gpu in gpus)
    return _fullest(_largest_drop_bytes(drops) for drops in _drops_by_gpu(before, after).values())


def is_back(own_pids: Set[int], held: Held, asleep_bytes: int | None) -> bool | None:
    """Whether an engine holds more than it did asleep; None when NVML names none of it, or asleep is not known."""
    peak = peak_bytes(own_pids, held)
    return peak > asleep_bytes if peak and asleep_bytes is not None else None


def _fullest(held_by_gpu: Iterable[int | None]) -> int | None:
    """The largest figure; None when one is missing or there is none at all."""
    fullest: int | None = None
    for held in held_by_gpu:
        if held is None:
            return None
        fullest = held if fullest is None else max(fullest, held)
    return fullest


def _own_bytes(drop: Drop) -> int | None:
    return drop.after_bytes if _is_like_a_sleep(drop) else None


def _largest_drop_bytes(drops: list[Drop]) -> int | None:
    ranked = sorted(drops, key=lambda drop: drop.size_bytes, reverse=True)
    runner_up = max(ranked[1].size_bytes, 0) if len(ranked) > 1 else 0
    stands_out = ranked[0].size_bytes >= LEAST_LEAD * runner_up
    return ranked[0].after_bytes if stands_out and _is_like_a_sleep(ranked[0]) else None


def _is_like_a_sleep(drop: Drop) -> bool:
    """Zero left is no sleep either: a sleeper keeps its context, and some drivers report zero for everyone."""
    return (
        drop.after_bytes > 0
        and drop.size_bytes >= LEAST_DROP_BYTES
        and 100 * drop.size_bytes >= LEAST_DROP_PERCENT * drop.before_bytes
    )


def _sum_by_gpu(pids: Set[int], held: Held) -> dict[str, int]:
    sums: dict[str, int] = {}
    for pid in pids:
        for gpu, held_bytes in held.get(pid, {}).items():
            sums[gpu] = sums.get(gpu, 0) + held_bytes
    return sums


def _drops_by_gpu(before: Held, after: Held) -> dict[str, list[Drop]]:
    drops: dict[str, list[Drop]] = {}
    for pid, held_after in after.items():
        for gpu, after_bytes in held_after.items():
            before_bytes = before.get(pid, {}).get(gpu)
            if before_bytes is not None:
                drops.setdefault(gpu, []).append(Drop(before_bytes, after_bytes))
    return drops
