"""Failed loads, kept in annotations of the adapter so that a restart does not forget them. Pure.

``retry-count.<pod>`` and ``last-retry-time.<pod>`` under ``adapter.model.aibrix.ai/``; names that would make a key too
long are cut and get a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from aibrix_operator.api import names
from aibrix_operator.api.conditions import rfc3339

MAX_TRIES: Final = 5
_FIRST_WAIT_S: Final = 5
_LONGEST_WAIT_S: Final = 300
_LONGEST_POD_NAME: Final = 63 - len("last-retry-time.")
_PREFIXES: Final = (names.RETRY_COUNT_PREFIX, names.LAST_RETRY_PREFIX)


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a Pod failed in a row, and when it did last."""

    count: int = 0
    last_at: datetime | None = None

    @property
    def is_given_up(self) -> bool:
        """Whether it is not tried any more."""
        return self.count >= MAX_TRIES

    def due_in_s(self, now: datetime) -> float:
        """Seconds until the next try: 10, 20, 40, 80 after 1 … 4 failures. 0: now."""
        if self.count <= 0 or self.last_at is None:
            return 0.0
        # The exponent is bounded, so that a count that somebody wrote does not make a number of a million digits.
        wait = timedelta(seconds=min(_FIRST_WAIT_S * 2 ** min(self.count, 10), _LONGEST_WAIT_S))
        # A clock that was set back must not make anybody wait for longer than that.
        return min(max((self.last_at + wait - now).total_seconds(), 0.0), wait.total_seconds())


def pod_part(pod: str) -> str:
    """What keys call the Pod."""
    if len(pod) <= _LONGEST_POD_NAME:
        return pod
    digest = hashlib.sha256(pod.encode()).hexdigest()[:12]
    return f"{pod[: _LONGEST_POD_NAME - 13].rstrip('.-')}-{digest}"


def tries_of(annotations: Mapping[str, str], pod: str, fresh_since: datetime | None) -> Tries:
    """What the annotations say of the Pod; nothing when it became ready, or another Pod, after the last try.

    ``fresh_since`` is that moment. Text that is no count or no time counts as absent.
    """
    part = pod_part(pod)
    text = annotations.get(names.RETRY_COUNT_PREFIX + part, "")
    count = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return since(Tries(count, _time(annotations.get(names.LAST_RETRY_PREFIX + part, ""))), fresh_since)


def since(tries: Tries, fresh_since: datetime | None) -> Tries:
    """``tries``, unless the last one came before that moment; within the same second it came after."""
    if fresh_since is None or tries.last_at is None or tries.last_at >= fresh_since.replace(microsecond=0):
        return tries
    return Tries()


def noted(pod: str, tries: Tries) -> dict[str, str | None]:
    """The annotations that say so."""
    part = pod_part(pod)
    if tries.count <= 0 or tries.last_at is None:
        return {prefix + part: None for prefix in _PREFIXES}
    return {
        names.RETRY_COUNT_PREFIX + part: str(tries.count),
        names.LAST_RETRY_PREFIX + part: rfc3339(tries.last_at),
    }


def stale(annotations: Mapping[str, str], pods: Iterable[str]) -> dict[str, str | None]:
    """Deletes the annotations of Pods other than ``pods``."""
    kept = {prefix + pod_part(pod) for pod in pods for prefix in _PREFIXES}
    return {key: None for key in annotations if key.startswith(_PREFIXES) and key not in kept}


def _time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
