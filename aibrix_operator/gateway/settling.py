"""Envoy's log put to account: each lease closed once, its slot and reserve given back, its tokens charged.

Called with the entries of Envoy's access log, and once a second for leases that nobody told of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from aibrix_operator.gateway.accounting import Account, account
from aibrix_operator.gateway.leases import Lease, Leases
from aibrix_operator.gateway.limits.limiter import Limiter
from aibrix_operator.gateway.settlement import Ended, LogEntry, StillRunning
from aibrix_operator.gateway.strategies.base import Usage
from aibrix_operator.gateway.token_sizes import TokenSizes

LOG = logging.getLogger(__name__)


class Observer(Protocol):
    """Counts ends; the gateway's metrics."""

    def ended(self, lease: Lease, ended: Ended, account: Account) -> None:
        """A request's end was told."""

    def expired(self, lease: Lease) -> None:
        """Its end was not told in time."""

    def unknown_lease(self) -> None:
        """An entry of a lease that is not open: it ended before, or another process opened it."""


class Settling:
    """All that happens when a request ends."""

    def __init__(self, leases: Leases, limiter: Limiter, observer: Observer, sizes: TokenSizes) -> None:
        """``sizes`` learns from what engines count."""
        self._leases = leases
        self._limiter = limiter
        self._observer = observer
        self._sizes = sizes

    def take(self, entries: Iterable[LogEntry], now_s: float) -> None:
        """In the order of the log. An entry without a lease is of a request that was never admitted."""
        for entry in entries:
            if not entry.lease:
                continue
            if isinstance(entry, StillRunning):
                self._renew(entry.lease, now_s)
            else:
                self._end(entry, now_s)

    def sweep(self, now_s: float) -> None:
        """End the leases that nobody renewed. Nothing is charged: most often their Envoy died, and they with it."""
        for lease in self._leases.expired(now_s):
            self._limiter.settle(lease.granted, None, now_s)
            self._observer.expired(lease)
            _tell_strategies(lease, None)

    def _renew(self, lease_id: str, now_s: float) -> None:
        lease = self._leases.renew(lease_id, now_s)
        if lease is None:
            self._observer.unknown_lease()
        else:
            self._limiter.renew(lease.granted, now_s)

    def _end(self, ended: Ended, now_s: float) -> None:
        lease = self._leases.close(ended.lease)
        if lease is None:
            self._observer.unknown_lease()
            return
        outcome = account(ended, lease.request)
        self._limiter.settle(lease.granted, outcome.tokens, now_s)
        self._observer.ended(lease, ended, outcome)
        if outcome.usage is not None and not outcome.usage.is_estimate:
            self._sizes.learn(lease.request.model, lease.request.prompt_bytes, outcome.usage.prompt)
        _tell_strategies(lease, outcome.usage)


def _tell_strategies(lease: Lease, usage: Usage | None) -> None:
    try:
        lease.forward.routing.ended(lease.request, lease.endpoint, usage)
    except Exception:  # A strategy may be anybody's code: its fault must not leave the rest of the log unread.
        LOG.exception("strategy %r failed over the end of a request", lease.forward.strategy)
