"""What an engine has done, by its metrics page, and the two figures by which Pods are compared. Pure.

All models of an engine count together: vLLM counts an adapter's requests under its base model's name, and one engine's
queue is everybody's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0
"""Figures are of the readings of so long; what an engine did an hour ago says little."""
LEAST_SPAN_S: Final = 5.0
"""Two readings are so far apart before they make a rate: one long prompt would look like a busy engine."""

# Our word → the engines' names. vLLM tells the time in the queue and after it apart, SGLang both in one.
_SUMMED: Final = {
    "busy_s": (
        "vllm:request_queue_time_seconds_sum",
        "vllm:request_inference_time_seconds_sum",
        "sglang:e2e_request_latency_seconds_sum",
    ),
    "requests": ("vllm:request_inference_time_seconds_count", "sglang:e2e_request_latency_seconds_count"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    "generated_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
}
_WORD_OF: Final = {name: word for word, names in _SUMMED.items() for name in names}


@dataclass(frozen=True, slots=True)
class Work:
    """One reading: sums since the engine started. None: its page does not tell."""

    read_at_s: float
    """On the monotonic clock."""
    requests: float | None = None
    """That ended."""
    busy_s: float | None = None
    """Seconds that these waited and were worked on."""
    prompt_tokens: float | None = None
    generated_tokens: float | None = None

    def is_less_than(self, before: Work) -> bool:
        """Whether the engine began anew since ``before``."""
        pairs = (
            (self.requests, before.requests),
            (self.busy_s, before.busy_s),
            (self.prompt_tokens, before.prompt_tokens),
            (self.generated_tokens, before.generated_tokens),
        )
        return any(now is not None and then is not None and now < then for now, then in pairs)


@dataclass(frozen=True, slots=True)
class WorkTold:
    """The oldest and the newest reading of the window; one and the same after the first."""

    oldest: Work | None = None
    newest: Work | None = None
    error: str = ""
    """Why the last try brought none: what was read before does not count then."""


def added(readings: list[Work], read: Work | str) -> WorkTold:
    """What is told after one more try. ``readings``, oldest first, is brought up to date."""
    if isinstance(read, str):
        return WorkTold(error=read)
    if readings and read.is_less_than(readings[-1]):
        readings.clear()
    readings.append(read)
    while len(readings) > 2 and read.read_at_s - readings[0].read_at_s > WINDOW_S:
        del readings[0]
    return WorkTold(readings[0], read)


def latency_s(told: WorkTold) -> float | None:
    """Mean time from queue to end: of the requests that ended in the window, else of all, 0 when there were none.

    None: the engine does not tell.
    """
    new, old = told.newest, told.oldest
    if told.error or new is None or new.requests is None or new.busy_s is None:
        return None
    if old is not None and old.requests is not None and old.busy_s is not None and new.requests > old.requests:
        return (new.busy_s - old.busy_s) / (new.requests - old.requests)
    return new.busy_s / new.requests if new.requests else 0.0


def weighted_tokens_per_minute(told: WorkTold) -> float | None:
    """Twice the prompts' and once the generated tokens of a minute. None: not told, or not for long enough yet."""
    new, old = _weighted_tokens(told.newest), _weighted_tokens(told.oldest)
    if told.error or new is None or old is None or (span_s := _span_s(told)) < LEAST_SPAN_S:
        return None
    return (new - old) * 60 / span_s


def is_rate_awaited(told: WorkTold) -> bool:
    """Whether the engine tells its tokens, and has not for long enough yet."""
    return not told.error and _weighted_tokens(told.newest) is not None and _span_s(told) < LEAST_SPAN_S


def is_news(before: WorkTold | None, after: WorkTold) -> bool:
    """Whether a Pod may be chosen now that could not be before, or the other way round."""
    if before is None or before.error != after.error:
        return True
    return any(
        (figure(before) is None) is not (figure(after) is None) for figure in (latency_s, weighted_tokens_per_minute)
    )


def _weighted_tokens(read: Work | None) -> float | None:
    if read is None or read.prompt_tokens is None or read.generated_tokens is None:
        return None
    return 2 * read.prompt_tokens + read.generated_tokens


def _span_s(told: WorkTold) -> float:
    return told.newest.read_at_s - told.oldest.read_at_s if told.newest is not None and told.oldest is not None else 0.0


def read_page(page: str, at_s: float) -> Work:
    """The sums of a page, over all its labels; what is no number is as good as not told."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        word = _WORD_OF.get(name)
        if word is None:
            continue
        value = _value(line[len(name) :].rpartition("}")[2])
        if value is not None:
            sums[word] = sums.get(word, 0.0) + value
    return Work(at_s, sums.get("requests"), sums.get("busy_s"), sums.get("prompt_tokens"), sums.get("generated_tokens"))


def _value(text: str) -> float | None:
    """Of ``value [timestamp]``."""
    try:
        value = float(text.split()[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) else None
