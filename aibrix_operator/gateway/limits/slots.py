"""Which endpoints' slots this gateway holds: one for each of its requests that goes on under an in-flight cap."""

from __future__ import annotations

from collections.abc import Sequence

from aibrix_operator.gateway.view import Endpoint


class Slots:
    """``Endpoint.key`` → slots held; never below 0."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def count(self, key: str) -> int:
        """Held there now."""
        return self._held.get(key, 0)

    def held(self) -> dict[str, int]:
        """All counts above 0."""
        return dict(self._held)

    def first_below(self, endpoints: Sequence[Endpoint], cap: int) -> Endpoint | None:
        """The first in their order that has room under ``cap``."""
        held = self._held
        for endpoint in endpoints:
            if held.get(endpoint.key, 0) < cap:
                return endpoint
        return None

    def take(self, key: str) -> None:
        """One more."""
        self._held[key] = self._held.get(key, 0) + 1

    def give_back(self, key: str) -> None:
        """One less. Each ``take`` is given back once."""
        left = self._held.get(key, 0) - 1
        if left > 0:
            self._held[key] = left
        else:
            self._held.pop(key, None)
