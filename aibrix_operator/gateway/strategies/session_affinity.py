"""``session-affinity``: a session's requests go to one engine.

1. ``x-session-id``, which we issue, names a candidate: that one.
2. ``x-aibrix-session-key``, which the caller owns: where it is pinned; else the candidate with the highest hash of key
   and address, on which all gateways agree without asking each other.
3. Else any.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.strategies import base, choosing
from aibrix_operator.gateway.strategies.base import Ask, Pick, Usage

if TYPE_CHECKING:
    from aibrix_operator.gateway.request import Request
    from aibrix_operator.gateway.view import Endpoint

LONGEST_KEY_BYTES: Final = 256
"""A longer one counts as absent."""
_MEMO: Final = "session-affinity"
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_FNV_MASK: Final = 2**64 - 1


class Pins(Protocol):
    """Where sessions are pinned; ``sessions.Sessions`` says how."""

    def address(self, model: str, key: str) -> str | None: ...

    def is_worth_a_look(self, model: str, key: str) -> bool: ...

    def look(self, model: str, key: str) -> Awaitable[None]: ...

    def pin(self, model: str, key: str, address: str) -> None: ...


class SessionAffinity:
    """As a scorer, the session's Pod has 1 and all others 0; a load scorer beside it may outvote that."""

    name = "session-affinity"
    lower_is_better = False

    def __init__(self, pins: Pins) -> None:
        self._pins = pins

    def pick(self, ask: Ask) -> Pick:
        """See ``Strategy``."""
        return Pick(self._of_session(ask) or choosing.draw(ask))

    def scores(self, ask: Ask) -> Sequence[float]:
        """All 0 for a request without a session."""
        chosen = self._of_session(ask)
        return [1.0 if endpoint is chosen else 0.0 for endpoint in ask.candidates]

    def admitted(self, ask: Ask, endpoint: Endpoint) -> None:
        """Pin the key to it, and tell the client the address."""
        given = ask.request.headers
        key = session_key(given.get(headers.SESSION_KEY))
        if key is not None and self._moves(ask, endpoint, key):
            self._pins.pin(ask.model.name, key, endpoint.address)
        ask.request.memo.pop(_MEMO, None)
        told = ask.request.memo.setdefault(base.FOR_CLIENT, {})
        told[headers.SESSION_ID] = session_id(endpoint.address)

    def ended(self, request: Request, endpoint: Endpoint, usage: Usage | None) -> None:
        """The session goes on."""

    def _of_session(self, ask: Ask) -> Endpoint | None:
        given = ask.request.headers
        if headers.SESSION_ID in given:
            endpoint = _at(ask, address_of(given[headers.SESSION_ID]))
            if endpoint is not None:
                return endpoint
        key = session_key(given.get(headers.SESSION_KEY))
        if key is None:
            return None
        model, memo = ask.model.name, ask.request.memo
        address = self._pins.address(model, key)
        if address is None and _MEMO not in memo:
            memo[_MEMO] = True
            if self._pins.is_worth_a_look(model, key):
                memo[base.BEFORE] = functools.partial(self._pins.look, model, key)
        return _at(ask, address) or rendezvous(key, ask.candidates)

    def _moves(self, ask: Ask, endpoint: Endpoint, key: str) -> bool:
        """A pin moves when its Pod is not ready any more, not when it is only full or filtered out for one request."""
        address = self._pins.address(ask.model.name, key)
        if address is None or address == endpoint.address:
            return True
        return all(other.address != address for other in ask.model.endpoints)


def session_key(value: str | None) -> str | None:
    """The caller's key, if it is 1 to 256 bytes long."""
    if not value or len(value) > LONGEST_KEY_BYTES:
        return None
    return value if len(value.encode("utf-8", "surrogatepass")) <= LONGEST_KEY_BYTES else None


def session_id(address: str) -> str:
    """What the client sends back to come to ``address`` again."""
    return base64.b64encode(address.encode()).decode()


def address_of(identity: str) -> str | None:
    """None: not of our making."""
    try:
        return base64.b64decode(identity, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return None


def rendezvous(key: str, candidates: Sequence[Endpoint]) -> Endpoint:
    """Highest FNV-1a hash of key, 0 and address; of equal ones the lower address."""
    start = fnv_1a(key.encode("utf-8", "surrogatepass") + b"\0")
    return min(candidates, key=lambda e: (-fnv_1a(e.address.encode(), start), e.address))


def fnv_1a(data: bytes, start: int = _FNV_OFFSET) -> int:
    """64 bits. ``start``: the hash of what goes before."""
    found = start
    for byte in data:
        found = (found ^ byte) * _FNV_PRIME & _FNV_MASK
    return found


def _at(ask: Ask, address: str | None) -> Endpoint | None:
    if address is None:
        return None
    return next((endpoint for endpoint in ask.candidates if endpoint.address == address), None)
