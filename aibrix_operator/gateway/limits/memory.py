"""Limits of one gateway, counted in its memory. Nothing waits."""

from __future__ import annotations

from aibrix_operator.gateway.limits.limiter import Admission, Charge, Denied, Granted, Limit
from aibrix_operator.gateway.limits.slots import Slots
from aibrix_operator.gateway.limits.windows import USER_WINDOW_S, Counts, index_of, left_s
from aibrix_operator.gateway.view import Endpoint


class MemoryLimiter:
    """A Limiter whose counts end with the process."""

    def __init__(self, slots: Slots | None = None) -> None:
        """``slots``: those that another limiter of this process counts too."""
        self.slots = Slots() if slots is None else slots
        self._rpm = Counts()
        self._tpm = Counts()
        self._rps: dict[int, Counts] = {}
        self._open: set[str] = set()

    def admit(self, charge: Charge) -> Admission:
        """Checks in the order RPM, TPM, model RPS, in-flight; only RPM is spent by what is refused later."""
        user, rps = charge.user, charge.rps
        if user is None and rps is None and charge.inflight is None:
            return Granted(charge, None)
        now_s = charge.now_s
        rpm = tpm = None
        if user is not None:
            minute = index_of(now_s, USER_WINDOW_S)
            rpm = self._rpm.count(user.name, minute)
            if not charge.rpm_is_spent:
                if rpm >= user.rpm:
                    return Denied(Limit.RPM, left_s(now_s, USER_WINDOW_S))
                rpm = self._rpm.add(user.name, minute, 1)
            tpm = self._tpm.count(user.name, minute)
            if tpm >= user.tpm:
                return Denied(Limit.TPM, left_s(now_s, USER_WINDOW_S))
        if not charge.endpoints:
            return Granted(charge, None, rpm, tpm)
        if rps is not None and self._rps_count(charge) >= rps.requests:
            return Denied(Limit.MODEL_RPS, left_s(now_s, rps.window_s))
        endpoint: Endpoint | None = None
        if charge.inflight is not None:
            endpoint = self.slots.first_below(charge.endpoints, charge.inflight)
            if endpoint is None:
                return Denied(Limit.INFLIGHT)
        return self._grant(charge, endpoint, rpm)

    def renew(self, granted: Granted, now_s: float) -> None:
        """Slots of memory last as long as the process."""

    def settle(self, granted: Granted, tokens: int | None, now_s: float) -> None:
        """Once a lease. Tokens over the reserve are charged in the minute of ``now_s`` when the minute has turned."""
        if not self._close(granted):
            return
        charge = granted.charge
        if charge.user is None:
            return
        name, used = charge.user.name, tokens or 0
        charged, now = index_of(charge.now_s, USER_WINDOW_S), index_of(now_s, USER_WINDOW_S)
        if used > charge.tokens:
            self._tpm.add(name, now, used - charge.tokens)
        else:
            self._tpm.take_back(name, charged, charge.tokens - used)

    def refund(self, granted: Granted, now_s: float) -> None:
        """Once a lease, as ``settle``; the user's RPM stays spent."""
        if not self._close(granted):
            return
        charge = granted.charge
        if charge.user is not None:
            self._tpm.take_back(charge.user.name, index_of(charge.now_s, USER_WINDOW_S), charge.tokens)
        if charge.rps is not None:
            window_s = charge.rps.window_s
            self._rps_counts(window_s).take_back(charge.model, index_of(charge.now_s, window_s), 1)

    def _grant(self, charge: Charge, endpoint: Endpoint | None, rpm: int | None) -> Granted:
        tpm = None
        if charge.user is not None:
            tpm = self._tpm.add(charge.user.name, index_of(charge.now_s, USER_WINDOW_S), charge.tokens)
        if charge.rps is not None:
            window_s = charge.rps.window_s
            self._rps_counts(window_s).add(charge.model, index_of(charge.now_s, window_s), 1)
        if endpoint is not None:
            self.slots.take(endpoint.key)
        self._open.add(charge.lease)
        return Granted(charge, endpoint, rpm, tpm, holds_slot=endpoint is not None)

    def _close(self, granted: Granted) -> bool:
        lease = granted.charge.lease
        if lease not in self._open:
            return False
        self._open.remove(lease)
        if granted.holds_slot and granted.endpoint is not None:
            self.slots.give_back(granted.endpoint.key)
        return True

    def _rps_count(self, charge: Charge) -> int:
        assert charge.rps is not None
        window_s = charge.rps.window_s
        return self._rps_counts(window_s).count(charge.model, index_of(charge.now_s, window_s))

    def _rps_counts(self, window_s: int) -> Counts:
        counts = self._rps.get(window_s)
        if counts is None:
            counts = self._rps[window_s] = Counts()
        return counts
