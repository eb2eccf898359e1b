"""Clients that ask a gateway's Envoy for models."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
from adapter_stage import DEADLINE_S, POLL_S


class Clients:
    """Each question goes through Envoy, which asks the gateway."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def ask(self, model: str) -> tuple[int, str]:
        """Status, and the Pod that the client is told of."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer:
            await answer.read()
            return answer.status, answer.headers.get("target-pod", "")

    async def ask_often(self, model: str, times: int = 40) -> Counter[tuple[int, str]]:
        """How often each end came."""
        return Counter([await self.ask(model) for _ in range(times)])

    async def until(self, model: str, status: int, pod: str = "") -> None:
        """Ask until it ends so."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + DEADLINE_S
        while (last := await self.ask(model)) != (status, pod):
            assert loop.time() < deadline_s, f"{model} still ends with {last}, not with {(status, pod)}"
            await asyncio.sleep(POLL_S)

    async def until_ready(self, api: str, log: Path) -> None:
        """The gateway has its first lists, and Envoy listens."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + DEADLINE_S
        while True:
            try:
                async with self._session.get(f"{api}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # not up yet
            assert loop.time() < deadline_s, f"not ready within {DEADLINE_S} s; its log is {log}"
            await asyncio.sleep(POLL_S)
