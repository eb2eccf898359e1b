"""``top`` in the terminal: look, draw, wait, again."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live

from aibrix_operator.explain import looking, top_frame
from aibrix_operator.explain.looking import CannotLook, Look, Looker
from aibrix_operator.explain.top_frame import Frame

READ_S = 2.0
"""A frame waits no longer for a runtime."""
_ALL = "all namespaces"


async def look_once(kubeconfig: Path | None, token: str | None, namespace: str | None) -> Frame:
    """One frame. CannotLook when there is nothing to look at."""
    async with looking.connect(kubeconfig, token) as looker:
        return _frame(await looker.look(namespace), namespace)


async def show(
    kubeconfig: Path | None, token: str | None, namespace: str | None, console: Console, interval_s: float
) -> None:
    """Draw a frame every ``interval_s`` until cancelled. CannotLook only before the first frame: later the last one
    stays, with what went wrong above it."""
    async with looking.connect(kubeconfig, token, READ_S) as looker:
        frame = _frame(await looker.look(namespace), namespace)
        with Live(frame, console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(dataclasses.replace(frame, height=console.height), refresh=True)
                await asyncio.sleep(interval_s)
                frame = await _next(looker, namespace, frame)


async def _next(looker: Looker, namespace: str | None, before: Frame) -> Frame:
    try:
        return _frame(await looker.look(namespace), namespace)
    except CannotLook as error:
        return dataclasses.replace(before, warnings=(f"as of {before.now:%H:%M:%S} UTC: {error}",))


def _frame(look: Look, namespace: str | None) -> Frame:
    return top_frame.build(look.fleets, namespace or _ALL, datetime.now(UTC), look.warnings)
