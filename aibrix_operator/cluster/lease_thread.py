"""An election that a busy event loop cannot hold up: the elector in a thread, loop and connection of its own.

A pass over thousands of claims keeps the operator's loop for longer than a renewal may be late. What hangs for good
is for the liveness probe to find, which the operator's loop answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aibrix_operator.api.term import Term
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.lease import Elector, LeaseSettings


class ElectionThread:
    """One replica's part in the election. ``is_leader`` and ``term`` may be asked in any thread."""

    def __init__(self, connect: Callable[[], Awaitable[Cluster]], settings: LeaseSettings, identity: str) -> None:
        """``connect`` makes the thread's own connection; ``identity`` is as for ``Elector``."""
        self._connect = connect
        self._settings = settings
        self._identity = identity
        self._elector: Elector | None = None
        self._inside: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._is_over = threading.Event()

    @property
    def is_leader(self) -> bool:
        """As ``Elector.is_leader``."""
        return self._elector is not None and self._elector.is_leader

    @property
    def term(self) -> Term | None:
        """As ``Elector.term``."""
        return None if self._elector is None else self._elector.term

    async def run(self, started: Callable[[Term], None], stopped: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As ``Elector.run``; both are called in the caller's loop. Cancelled, it first gives the Lease back."""
        outside = asyncio.get_running_loop()
        ended: asyncio.Future[None] = outside.create_future()

        def begin(term: Term) -> None:
            outside.call_soon_threadsafe(started, term)

        async def end() -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stopped(), outside))

        def work() -> None:
            problem: BaseException | None = None
            try:
                asyncio.run(self._take_part(begin, end))
            except BaseException as error:  # is raised in the caller's loop
                problem = error
            outside.call_soon_threadsafe(_finish, ended, problem)

        # A daemon: a process that ends without having asked must not wait for it.
        threading.Thread(target=work, name="election", daemon=True).start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._is_over.set()
            if self._inside is not None:
                loop, task = self._inside
                loop.call_soon_threadsafe(task.cancel)
            await asyncio.wait([ended])
            raise

    async def _take_part(self, begin: Callable[[Term], None], end: Callable[[], Awaitable[None]]) -> None:
        async with await self._connect() as cluster:
            self._elector = elector = Elector(cluster, self._settings, self._identity)
            election = asyncio.create_task(elector.run(begin, end))
            self._inside = asyncio.get_running_loop(), election
            if self._is_over.is_set():
                election.cancel()
            await asyncio.wait([election])
            await elector.release()
            if not election.cancelled():
                await election


def _finish(ended: asyncio.Future[None], problem: BaseException | None) -> None:
    if ended.done():
        return
    if problem is None:
        ended.set_result(None)
    else:
        ended.set_exception(problem)
