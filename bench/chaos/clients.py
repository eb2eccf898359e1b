"""Clients that ask every model all the time, as a gateway would forward them, and what became of each request."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

from bench.chaos.kills import Kills
from bench.chaos.stage import Stage, Target

_TOKENS = 24
_WITHIN_S = 60.0
_PAUSE_S = 0.1
_UNROUTED_PAUSE_S = 0.2
STALE_S = 20.0
"""So long after a kill a request may still reach an engine that is gone: what nobody can see yet. It is the time of a
reading, a pass and a restart of whoever had to see it."""


@dataclass(slots=True)
class Answers:
    """What the clients got."""

    whole: Counter[str] = field(default_factory=Counter)
    """Model → answers received to their end."""
    unrouted: int = 0
    """Looks that found no active route: the gateway answers such a request itself, and asks to come again."""
    cut: Counter[str] = field(default_factory=Counter)
    """Why an answer was cut or not begun → how often, where a kill explains it."""
    unexplained: list[str] = field(default_factory=list)


class Client:
    """Asks for one model until it is cancelled."""

    def __init__(self, model: str, stage: Stage, kills: Kills, answers: Answers) -> None:
        self._model = model
        self._stage = stage
        self._kills = kills
        self._answers = answers

    async def run(self) -> None:
        while True:
            target = self._stage.target(self._model)
            if target is None:
                self._answers.unrouted += 1
                await asyncio.sleep(_UNROUTED_PAUSE_S)
                continue
            await self._ask(target)
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self, target: Target) -> None:
        asked_s, url = time.monotonic(), f"http://{target.address}:{target.route.port}/v1/completions"
        body = {"model": self._model, "prompt": "Who are you?", "max_tokens": _TOKENS, "ignore_eos": True}
        timeout = aiohttp.ClientTimeout(total=_WITHIN_S)
        try:
            async with self._stage.session.post(url, json={**body, "stream": True}, timeout=timeout) as answer:
                text = await answer.text()
                problem = (
                    "" if answer.status == 200 and "[DONE]" in text else f"status {answer.status}: {text[-200:]!r}"
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            problem = f"{type(error).__name__}: {error}"
        if not problem:
            self._answers.whole[self._model] += 1
            return
        why = self._kills.explain(target.pod_uid, self._model, asked_s - STALE_S)
        if why is None:
            text = f"an answer of {self._model} on pod {target.pod} was cut after {time.monotonic() - asked_s:.1f} s, "
            self._answers.unexplained.append(f"{text}and nothing was killed there: {problem}")
        else:
            self._answers.cut[why] += 1
