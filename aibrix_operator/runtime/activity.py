"""Reads an engine's request figures from its metrics page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from prometheus_client.parser import text_string_to_metric_families

from aibrix_operator.runtime.engines.kind import MetricNames
from aibrix_operator.runtime_api.wire import INT64_MAX

MODEL_LABEL = "model_name"


@dataclass(frozen=True, slots=True)
class Activity:
    """What an engine is doing. Not observed is not idle: the figures then mean nothing."""

    observed: bool = False
    running: int = 0
    waiting: int = 0
    succeeded: int | None = None
    """None when the page has no such counter."""


UNOBSERVED = Activity()


def parse(page: str, names: MetricNames, model_name: str) -> Activity:
    """The figures of ``model_name``, summed over all other labels. Another engine's samples are not looked at.

    Only lines that begin with a wanted name are parsed: a page may hold every engine of the Pod.
    """
    wanted = {*names.running, *names.waiting, *names.succeeded}
    try:
        sums = _sums(_lines_of(page, wanted), model_name)
    except ValueError:
        return UNOBSERVED
    running, waiting, succeeded = (
        _first(sums, spellings) for spellings in (names.running, names.waiting, names.succeeded)
    )
    if running is None and waiting is None and succeeded is None:
        return UNOBSERVED
    return Activity(True, running or 0, waiting or 0, succeeded)


def _lines_of(page: str, wanted: Iterable[str]) -> str:
    heads = tuple(f"{name}{opener}" for name in wanted for opener in ("{", " ", "\t"))
    return "\n".join(line for line in page.splitlines() if line.startswith(heads)) + "\n"


def _sums(lines: str, model_name: str) -> dict[str, int]:
    """metric name → sum. A figure that is no count is left out."""
    sums: dict[str, int] = {}
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            is_ours = sample.labels.get(MODEL_LABEL) == model_name
            if is_ours and isfinite(sample.value) and 0 <= sample.value <= INT64_MAX:
                sums[sample.name] = min(sums.get(sample.name, 0) + int(sample.value), INT64_MAX)
    return sums


def _first(sums: dict[str, int], spellings: Sequence[str]) -> int | None:
    return next((sums[name] for name in spellings if name in sums), None)
