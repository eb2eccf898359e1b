"""One leader among replicas, by a Lease of the API server, as client-go's leader election has it.

The holder renews the Lease; who wants to lead takes it when it has not changed for its whole duration. Every replica
counts that time on its own monotonic clock from when it saw the change, and compares its clock with nobody's. The
holder stops at two thirds of the duration after it *sent* its last renewal, so before anybody can have seen it
unchanged for all of it. A renewal that finds another holder, or no Lease, ends the term too.

The package's own elector (``kubernetes.aio.leaderelection`` 37) is not used: it counts on the wall clock, sets no limit
to a renewal that hangs while it believes to lead, counts no transitions and releases nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

from aibrix_operator.api.term import Term, parse_term
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import LEASES, Object, Resource

log = logging.getLogger(__name__)

DURATION_S = 3
RENEW_S = 1.0
_JITTER = 0.2


class Leases(Protocol):
    """The calls of ``cluster.client.Cluster`` that an election needs."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object: ...

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]
    ) -> Object: ...


class Lead(Protocol):
    """Whether this replica leads. May be asked in any thread."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def term(self) -> Term | None: ...


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which Lease, and its pace. ValueError when two renewals do not fit into the time that a leader has."""

    namespace: str
    name: str
    duration_s: int = DURATION_S
    """After this long without a renewal another replica leads."""
    renew_s: float = RENEW_S

    def __post_init__(self) -> None:
        """Check the pace."""
        if self.duration_s < 1 or self.renew_s <= 0 or 2 * self.renew_s > self.deadline_s:
            raise ValueError(
                f"a lease of {self.duration_s} s cannot be renewed every {self.renew_s:g} s:"
                " the duration must be a whole number of at least 1 and at least three times the renewal"
            )

    @property
    def deadline_s(self) -> float:
        """A leader that could not renew for this long stops."""
        return self.duration_s * 2 / 3

    @property
    def poll_s(self) -> float:
        """How often those who wait look."""
        return self.renew_s / 2


# What of a Lease its holder changes: (uid, holder, renewTime, acquireTime, transitions, duration).
_Seen: TypeAlias = tuple[Any, ...]


class Elector:
    """One replica's part in the election. ``identity`` must be this process's alone, also over restarts."""

    def __init__(
        self, leases: Leases, settings: LeaseSettings, identity: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock`` counts seconds and never goes back."""
        self.settings = settings
        self.identity = identity
        self._leases = leases
        self._clock = clock
        self._term: Term | None = None
        self._until_s = -math.inf
        self._lease: Object | None = None  # as we wrote it last; None while we hold none
        self._seen: _Seen | None = None
        self._seen_s = -math.inf
        self._problem = ""

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now. True for no two at any time."""
        return self._clock() < self._until_s

    @property
    def term(self) -> Term | None:
        """The term in which this process leads now; None while it does not."""
        return self._term if self.is_leader else None

    async def run(self, started: Callable[[Term], None], stopped: Callable[[], Awaitable[None]]) -> None:
        """Take part until cancelled.

        ``started`` is called at the begin of each term, ``stopped`` at its end unless that is the cancellation;
        ``is_leader`` is False before ``stopped`` is called. No new term begins before ``stopped`` is done.
        """
        while True:
            term = await self._acquire()
            log.info("leading in term %s as %s", term, self.identity)
            started(term)
            reason = await self._keep(term)
            self._until_s, self._lease = -math.inf, None
            log.warning("no longer leading in term %s: %s", term, reason)
            await stopped()

    async def release(self) -> None:
        """Give the Lease back, so that another leads at once. After ``run`` was cancelled and nothing acts any more."""
        term, self._until_s = self._term, -math.inf
        if self._lease is None or term is None:
            return
        try:
            async with asyncio.timeout(self.settings.renew_s):
                await self._update(term, _released)
        except (errors.ClusterError, TimeoutError) as error:
            log.warning("the lease could not be released and has to expire: %s", _text(error))
        else:
            log.info("released the lease of term %s", term)
        self._lease = None

    # --- those who wait

    async def _acquire(self) -> Term:
        while True:
            try:
                async with asyncio.timeout(self.settings.deadline_s):
                    term = await self._try_to_acquire()
            except (errors.ClusterError, TimeoutError) as error:
                self._complain(error)
            else:
                self._problem = ""
                if term is not None:
                    return term
            await asyncio.sleep(self._pause_s())

    async def _try_to_acquire(self) -> Term | None:
        where = self.settings.namespace, self.settings.name
        try:
            found = await self._leases.get(LEASES, *where)
        except errors.NotFound:
            # Deleted under a holder, which will see it at its next renewal.
            if self._is_held_by_another():
                return None
            asked_s = self._clock()
            lease = await self._leases.create(LEASES, where[0], self._new_lease())
        else:
            self._see(found)
            if self._is_held_by_another():
                return None
            asked_s = self._clock()
            lease = await self._leases.replace(LEASES, *where, self._taken(found))
        self._lease, self._term, self._until_s = lease, _term_of(lease), asked_s + self.settings.deadline_s
        # An answer can come so late that the time is over already: the next try takes the Lease in a new term.
        return self.term

    def _see(self, lease: Object) -> None:
        spec = lease.get("spec") or {}
        what = ("holderIdentity", "renewTime", "acquireTime", "leaseTransitions", "leaseDurationSeconds")
        seen = (lease["metadata"].get("uid"), *(spec.get(key) for key in what))
        if seen == self._seen:
            return
        holder = seen[1]
        if holder and holder != self.identity and (self._seen is None or holder != self._seen[1]):
            log.info("%s leads; waiting for the lease as %s", holder, self.identity)
        self._seen, self._seen_s = seen, self._clock()

    def _is_held_by_another(self) -> bool:
        return self._expires_s() > self._clock()

    def _expires_s(self) -> float:
        """When what was seen last may be taken, on our clock."""
        if self._seen is None or self._seen[1] in (None, "", self.identity):
            return -math.inf
        return self._seen_s + (self._seen[-1] or self.settings.duration_s)

    def _pause_s(self) -> float:
        """Until the next look, or until what is held expires if that is sooner."""
        pause_s = _jittered(self.settings.poll_s)
        left_s = self._expires_s() - self._clock()
        return min(pause_s, left_s) if left_s > 0 else pause_s

    def _complain(self, error: Exception) -> None:
        """Once for each problem in a row."""
        text = _text(error)
        if isinstance(error, errors.Conflict | errors.AlreadyExists):
            log.debug("another took the lease first: %s", text)
        elif text != self._problem:
            log.warning("no look at the lease: %s; trying again all %g s", text, self.settings.poll_s)
        self._problem = text

    # --- the holder

    async def _keep(self, term: Term) -> str:
        """Renew until the term is over. Returns why it is."""
        pause_s, problem = _jittered(self.settings.renew_s), "the process had no time for it"
        while True:
            await asyncio.sleep(min(pause_s, self._until_s - self._clock()))
            left_s = self._until_s - self._clock()
            if left_s <= 0:
                return f"not renewed for {self.settings.deadline_s:g} s: {problem}"
            try:
                async with asyncio.timeout(left_s):
                    asked_s, lease = await self._update(term, _renewed)
            except errors.NotFound:
                return "the Lease was deleted"
            except _TakenOver as error:
                return str(error)
            except (errors.ClusterError, TimeoutError) as error:
                problem, pause_s = _text(error), _jittered(self.settings.renew_s / 4)
                log.warning("the lease was not renewed: %s", problem)
                continue
            if not self.is_leader:
                return "the renewal was answered too late"
            self._lease, self._until_s = lease, asked_s + self.settings.deadline_s
            pause_s = _jittered(self.settings.renew_s)

    async def _update(self, term: Term, change: Callable[[Object], Object]) -> tuple[float, Object]:
        """Write the Lease as the holder in ``term``; when it was asked for, and the answer. Raises ``_TakenOver``."""
        assert self._lease is not None
        where = self.settings.namespace, self.settings.name
        asked_s = self._clock()
        try:
            return asked_s, await self._leases.replace(LEASES, *where, change(self._lease))
        except errors.Conflict:
            # Taken over, labelled by somebody, or the answer to our own last write was lost.
            lease = await self._leases.get(LEASES, *where)
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder != self.identity or _term_of(lease) != term:
            raise _TakenOver(f"{holder or 'somebody else'} took the lease")
        asked_s = self._clock()
        return asked_s, await self._leases.replace(LEASES, *where, change(lease))

    # --- bodies

    def _new_lease(self) -> Object:
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self.settings.name, "namespace": self.settings.namespace},
            "spec": self._spec(transitions=0),
        }

    def _taken(self, lease: Object) -> Object:
        """Ours, in a new term: also when it is ours already, because what we sent in the last one may still arrive."""
        transitions = (lease.get("spec") or {}).get("leaseTransitions") or 0
        return {**lease, "spec": {**(lease.get("spec") or {}), **self._spec(transitions + 1)}}

    def _spec(self, transitions: int) -> Object:
        now = _now()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.settings.duration_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


class _TakenOver(Exception):
    """Another replica holds the Lease."""


def _renewed(lease: Object) -> Object:
    return {**lease, "spec": {**lease["spec"], "renewTime": _now()}}


def _released(lease: Object) -> Object:
    changed = _renewed(lease)
    changed["spec"].pop("holderIdentity", None)
    changed["spec"]["leaseDurationSeconds"] = 1
    return changed


def _term_of(lease: Object) -> Term:
    return parse_term(f"{lease['metadata']['creationTimestamp']}/{lease['spec'].get('leaseTransitions') or 0}")


def _now() -> str:
    """For people who look at the Lease: no replica reads it as a time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(1 - _JITTER, 1)


def _text(error: BaseException) -> str:
    return str(error) or "no answer in time"
