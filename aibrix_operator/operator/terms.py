"""What only the leading replica does: passes and steps. Every replica's caches are warm; a term begins with them.

A term that is over ends everything under way at once, and the next one, here or elsewhere, begins as after a restart.
Ending the process instead, as Go's controllers do that cannot cancel what they run, would cost the warm caches, and a
Deployment lets a container that ends again and again wait for minutes, just when the API server has come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aibrix_operator.api.term import Term
from aibrix_operator.cluster.resource import Resource
from aibrix_operator.controller.controller import Controller


class Terms:
    """Begins and ends terms of all controllers. ``begin`` and ``end`` are the elector's callbacks."""

    def __init__(
        self,
        controllers: Sequence[Controller],
        list_anew: Callable[[Resource], Awaitable[None]],
        watch_over: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """``list_anew`` brings the objects of an own kind to what the API server has now, however long that takes.

        ``watch_over`` ends the process when a task that begins a term fails: it would lead and do nothing.
        """
        self._controllers = controllers
        self._list_anew = list_anew
        self._watch_over = watch_over
        self._beginning: list[asyncio.Task[None]] = []
        self._is_closed = False

    def begin(self, term: Term) -> None:
        """Start passes of each kind as soon as its objects are what the last leader left."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        # Side by side: a kind whose list does not come holds up no other.
        self._beginning = [
            loop.create_task(self._begin(one), name=f"begin of term {term} for {one.name}") for one in self._controllers
        ]
        for task in self._beginning:
            self._watch_over(task)

    async def _begin(self, controller: Controller) -> None:
        # The watch may lag behind what the last leader wrote, and a promise that is not seen would be made twice.
        for resource in controller.own:
            await self._list_anew(resource)
        await controller.begin()

    async def end(self, grace_s: float = 0.0) -> None:
        """No more passes; steps under way may finish for ``grace_s`` and are cut then."""
        for task in self._beginning:
            task.cancel()
        await asyncio.gather(*(one.end(grace_s) for one in self._controllers))

    async def close(self, grace_s: float) -> None:
        """As ``end``, and no term begins any more."""
        self._is_closed = True
        await self.end(grace_s)
