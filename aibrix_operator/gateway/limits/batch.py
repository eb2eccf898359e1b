"""Many requests' charges and settlements as one call of the admission script, and what its answer means. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aibrix_operator.gateway.limits import keys
from aibrix_operator.gateway.limits.limiter import Charge
from aibrix_operator.gateway.limits.windows import USER_WINDOW_S, index_of
from aibrix_operator.gateway.view import Endpoint

USER_TTL_MS: Final = USER_WINDOW_S * 1000
TRIED: Final = 8
"""Endpoints that one call tries for a request. Where all of these are full, another call tries all the others."""


@dataclass(slots=True, eq=False)
class Asked:
    """One charge that waits for Redis."""

    charge: Charge
    minute: int
    """The user's window that it is charged in."""
    window: int
    """The model's."""
    endpoints: Sequence[Endpoint]
    """Those of this call."""
    rest: Sequence[Endpoint] = ()
    """Those of the next, if these are full."""
    is_counted: bool = False
    """The user's RPM was spent by a call before."""


def asked(charge: Charge, now_s: float, own: Callable[[str], int]) -> Asked:
    """``now_s`` by the clock that windows are cut by. ``own``: slots that this gateway holds at an ``Endpoint.key``.

    Endpoints that our own requests fill are not asked about.
    """
    endpoints: Sequence[Endpoint] = ()
    if charge.inflight is not None:
        cap = charge.inflight
        endpoints = [endpoint for endpoint in charge.endpoints if own(endpoint.key) < cap]
    window = index_of(now_s, charge.rps.window_s) if charge.rps is not None else 0
    minute = index_of(now_s, USER_WINDOW_S)
    return Asked(charge, minute, window, endpoints[:TRIED], endpoints[TRIED:], charge.rpm_is_spent)


def again(before: Asked) -> Asked:
    """For the endpoints that the first call did not try."""
    return Asked(before.charge, before.minute, before.window, before.rest, is_counted=True)


class Batch:
    """Grows by what is to be said; ``document`` and ``keys`` are what the script is called with."""

    def __init__(self, own: Callable[[str], int]) -> None:
        """``own``: slots held at an ``Endpoint.key``, as of the call."""
        self.keys = [keys.GATEWAYS]
        self.slots: set[str] = set()
        """``Endpoint.key`` of every slots hash that the script may write."""
        self._own = own
        self._places: dict[str, int] = {}
        self._held: list[tuple[int, int]] = []
        self._write: list[int] = []
        self._tokens: list[tuple[int, int, int]] = []
        self._back: list[int] = []
        self._asked: list[list[Any]] = []
        self._endpoints: list[dict[int, Endpoint]] = []

    def write(self, endpoint_key: str) -> None:
        """Tell Redis the slots that are held there."""
        self._write.append(self._slots_place(endpoint_key))

    def tokens(self, key: str, amount: int) -> None:
        """Add to a user's tokens; below 0: take back."""
        self._tokens.append((self._place(key), amount, USER_TTL_MS))

    def take_back(self, key: str) -> None:
        """One request of a model."""
        self._back.append(self._place(key))

    def ask(self, one: Asked) -> None:
        """Add a charge. Answers come in the order of charges."""
        charge = one.charge
        line: list[Any] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, []]
        endpoints: dict[int, Endpoint] = {}
        if charge.user is not None:
            user = charge.user
            line[0:3] = self._place(keys.user_rpm(user.name, one.minute)), user.rpm, 0 if one.is_counted else 1
            line[3:5] = self._place(keys.user_tpm(user.name, one.minute)), user.tpm
        if charge.endpoints:
            line[5] = charge.tokens
            if charge.rps is not None:
                window_s = charge.rps.window_s
                place = self._place(keys.model_rps(charge.model, window_s, one.window))
                line[6:9] = place, charge.rps.requests, window_s * 1000
            if charge.inflight is not None:
                line[9] = charge.inflight
                endpoints = {self._slots_place(endpoint.key): endpoint for endpoint in one.endpoints}
                line[10] = list(endpoints)
        self._asked.append(line)
        self._endpoints.append(endpoints)

    def document(self) -> bytes:
        """The script's last argument."""
        return orjson.dumps(
            {
                "own": self._held,
                "write": self._write,
                "tokens": self._tokens,
                "back": self._back,
                "asked": self._asked,
            }
        )

    def endpoint(self, index: int, place: int) -> Endpoint | None:
        """The endpoint of charge ``index`` that the script means by ``place``."""
        return self._endpoints[index].get(place)

    def _place(self, key: str) -> int:
        place = self._places.get(key)
        if place is None:
            self.keys.append(key)
            place = self._places[key] = len(self.keys)
        return place

    def _slots_place(self, endpoint_key: str) -> int:
        place = self._place(keys.slots(endpoint_key))
        if endpoint_key not in self.slots:
            self.slots.add(endpoint_key)
            self._held.append((place, self._own(endpoint_key)))
        return place
