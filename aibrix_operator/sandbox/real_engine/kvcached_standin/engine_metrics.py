"""What the keeper reads from an engine's /metrics page: use of the KV pool, and sleep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)$")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a serving engine."""

    kv_used_bytes: int
    is_asleep: bool


def parse(page: str) -> Reading | None:
    """The reading of a vLLM page, summed over its engine cores; None when the page lacks the pool's size or its use.

    The use is a share of the pool, whose size in bytes vLLM gives as a label of its cache configuration.
    """
    pool_bytes: dict[str, int] = {}
    share: dict[str, float] = {}
    awake: list[bool] = []
    for name, labels, value in _samples(page):
        core = labels.get("engine", "")
        if name == "vllm:cache_config_info" and labels.get("kv_cache_memory_bytes", "").isdecimal():
            pool_bytes[core] = int(labels["kv_cache_memory_bytes"])
        elif name == "vllm:kv_cache_usage_perc":
            share[core] = value
        elif name == "vllm:engine_sleep_state" and labels.get("sleep_state") == "awake":
            awake.append(value > 0)
    if not pool_bytes or pool_bytes.keys() != share.keys():
        return None
    return Reading(sum(round(share[core] * pool_bytes[core]) for core in share), awake != [] and not any(awake))


def _samples(page: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in page.splitlines():
        if line.startswith("vllm:") and (found := _SAMPLE.match(line)):
            name, labels, value = found.groups()
            yield name, dict(_LABEL.findall(labels or "")), float(value)
