"""Asking the API server until it answers: for what nothing can go on without, and nothing is lost by waiting for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aibrix_operator.cluster import errors

log = logging.getLogger(__name__)

RETRY_S = 2.0

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]], wherefore: str) -> T:
    """What ``ask`` returns, once it does. ``wherefore``: who waits, for the log.

    Raises NotFound: a kind that is not installed is an answer.
    """
    while True:
        try:
            return await ask()
        except errors.NotFound:
            raise
        except errors.ClusterError as error:
            log.warning("%s: %s; asking again in %.0f s", wherefore, error, RETRY_S)
            await asyncio.sleep(RETRY_S)
