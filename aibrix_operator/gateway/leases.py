"""What is on its way through Envoy: one lease a request, from its admission until its end is told or nobody tells.

A lease counts its request in :class:`~aibrix_operator.gateway.loads.Loads`. It lives for ``lifetime_s`` unless renewed:
Envoy's log renews those that go on, so that one whose end was lost stops counting.
"""

from __future__ import annotations

import itertools
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from aibrix_operator.gateway.limits.limiter import Granted
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.request import Request
from aibrix_operator.gateway.verdict import Forward
from aibrix_operator.gateway.view import Endpoint

RENEWALS_MISSED: Final = 3.5
"""How many of Envoy's periodic entries may be lost or late before a request counts as ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """One request that was forwarded."""

    id: str
    forward: Forward
    granted: Granted
    request: Request
    opened_s: float

    @property
    def endpoint(self) -> Endpoint:
        """Where it went: the endpoint whose slot it holds, else the one that was picked."""
        return self.granted.endpoint or self.forward.endpoint


class Leases:
    """All open leases of this gateway.

    Asked for what expired every second or so. Time in which nobody asked, because the clock was set or the process
    stood still, counts for a third of a lifetime at most: the log could not be read either.
    """

    def __init__(self, loads: Loads, lifetime_s: float) -> None:
        self._loads = loads
        self._lifetime_s = lifetime_s
        self._prefix = secrets.token_hex(6)
        self._serial = itertools.count()
        # Equal lifetimes: the order of the last renewal is the order of expiry.
        self._open: OrderedDict[str, tuple[float, Lease]] = OrderedDict()
        self._age_s = 0.0
        self._seen_s: float | None = None

    def __len__(self) -> int:
        return len(self._open)

    def new_id(self) -> str:
        """Names one request, and none of another gateway's or of an earlier process."""
        return f"{self._prefix}-{next(self._serial):x}"

    def open(self, forward: Forward, granted: Granted, request: Request, now_s: float) -> Lease:
        """Count the request. Its lease's id is the one it was charged under, a ``new_id``."""
        lease = Lease(granted.charge.lease, forward, granted, request, now_s)
        self._open[lease.id] = (self._age(now_s) + self._lifetime_s, lease)
        self._loads.add(lease.endpoint)
        return lease

    def renew(self, lease_id: str, now_s: float) -> Lease | None:
        """It goes on. None: no such lease is open."""
        kept = self._open.get(lease_id)
        if kept is None:
            return None
        self._open[lease_id] = (self._age(now_s) + self._lifetime_s, kept[1])
        self._open.move_to_end(lease_id)
        return kept[1]

    def close(self, lease_id: str) -> Lease | None:
        """Stop counting it. None: it was closed before, expired, or never ours."""
        kept = self._open.pop(lease_id, None)
        if kept is None:
            return None
        self._loads.remove(kept[1].endpoint)
        return kept[1]

    def expired(self, now_s: float) -> list[Lease]:
        """Close those that nobody renewed in time, and return them."""
        age_s = self._age(now_s)
        out: list[Lease] = []
        while self._open:
            lease_id, (expires_s, _) = next(iter(self._open.items()))
            if expires_s > age_s:
                break
            lease = self.close(lease_id)
            assert lease is not None
            out.append(lease)
        return out

    def _age(self, now_s: float) -> float:
        """Of this object: never less than before."""
        if self._seen_s is not None:
            self._age_s += min(max(now_s - self._seen_s, 0.0), self._lifetime_s / 3)
        self._seen_s = now_s
        return self._age_s
