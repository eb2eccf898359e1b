"""Which Pods the next pass has to look at, and which ones are due later.

Almost everything that happens concerns one Pod: its runtime said something, a step of its own ended, somebody asked for
an engine on it. While no claim wants a place, a pass then looks at that Pod and at the claims on it, so that what a
wake costs does not grow with the fleet. Anything else, and a mark that nobody can place, makes it a whole pass.
Losing marks would lose work, so a pass that fails marks everything again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Scope: TypeAlias = frozenset[str] | None
"""Names of Pods; None is the whole namespace."""


class Attention:
    """The marks of one namespace."""

    def __init__(self) -> None:
        self._marked: set[str] = set()
        self._is_whole = True
        """Nothing has been looked at yet."""
        self._alarms: dict[Scope, float] = {}
        """What is due → when."""

    def mark(self, pods: Iterable[str] | None) -> None:
        """Look at these Pods in the next pass; None: at everything."""
        if pods is None:
            self._is_whole = True
        else:
            self._marked.update(pods)

    def mark_at(self, due_s: float, scope: Scope) -> None:
        """Look at these Pods at that time at the latest. An earlier time for the same stays."""
        self._alarms[scope] = min(due_s, self._alarms.get(scope, due_s))

    def take(self, now_s: float) -> Scope:
        """What to look at now. Marks are taken, and so are alarms that are due: the pass plans them anew."""
        for scope, due_s in list(self._alarms.items()):
            if due_s <= now_s:
                self.mark(scope)
        scope = None if self._is_whole else frozenset(self._marked)
        self._marked, self._is_whole = set(), False
        self._alarms = {s: due_s for s, due_s in self._alarms.items() if not _covers(scope, s)}
        return scope

    @property
    def next_s(self) -> float | None:
        """When the earliest alarm is due."""
        return min(self._alarms.values(), default=None)


def _covers(scope: Scope, other: Scope) -> bool:
    return scope is None or (other is not None and other <= scope)
