"""A run from the first claim to the last check."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.sandbox import pool, state, up
from bench.chaos import stage as staging
from bench.chaos.clients import Answers, Client
from bench.chaos.kills import Kills
from bench.chaos.laws import Laws
from bench.chaos.stage import Stage

CLIENTS_PER_MODEL = 2
_START_WITHIN_S = 120.0
_RECOVER_WITHIN_S = 120.0
"""An engine that was killed five times waits 32 s before it is started again, and a Pod has to come back."""
_CALM_S = 5.0
"""After the last recovery every answer must be whole, for so long."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is made of. One seed draws the same kinds and pauses; which process is hit depends on time too."""

    seconds: float
    seed: int
    cards: int = 3


@dataclass(slots=True)
class Report:
    """What came of a run. ``broken`` is empty when all is well."""

    settings: Settings
    kills: Counter[str] = field(default_factory=Counter)
    takeovers_s: list[float] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    looks: int = 0
    longest_over_s: float = 0.0
    recovered_s: float = 0.0
    """From the last kill until every claim was Active and routed again."""
    broken: list[str] = field(default_factory=list)


def run(settings: Settings) -> Report:
    """A sandbox of its own, and the run in it."""
    name = f"chaos-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="aibrix-chaos-") as scratch:
        sandbox = staging.start(name, settings.cards, Path(scratch) / "profiles.json")
        try:
            return uvloop.run(_play(sandbox, settings))
        finally:
            if state.load(name) is not None:
                up.down(name)


async def _play(sandbox: state.Sandbox, settings: Settings) -> Report:
    report = Report(settings)
    models = staging.claim_names(settings.cards)
    async with Stage.open(sandbox) as stage:
        for model in models:
            await stage.cluster.create(MODEL_CLAIMS, pool.NAMESPACE, staging.claim_body(model))
        if not await _until(lambda: _is_whole(stage, models, settings.cards), _START_WITHIN_S):
            raise SystemExit(f"not every claim became Active within {_START_WITHIN_S:.0f} s: {_phases(stage)}")
        laws, kills = Laws(stage), Kills(stage, settings.seed, settings.cards)
        clients = [Client(model, stage, kills, report.answers) for model in models for _ in range(CLIENTS_PER_MODEL)]
        watching = asyncio.gather(laws.run(), *(client.run() for client in clients))
        try:
            await _for(settings.seconds, kills.run(), watching)
            ended_s = time.monotonic()
            if not await _until(lambda: _is_whole(stage, models, settings.cards), _RECOVER_WITHIN_S):
                report.broken.append(f"{_RECOVER_WITHIN_S:.0f} s after the last kill: {_phases(stage)}")
            report.recovered_s = time.monotonic() - ended_s
            before = report.answers.whole.copy()
            await _for(_CALM_S, _nothing(), watching)
            silent = [model for model in models if report.answers.whole[model] == before[model]]
            report.broken += [f"{model} is Active and gives no answer" for model in silent]
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    report.kills, report.takeovers_s = kills.counts, kills.takeovers_s
    report.looks, report.longest_over_s = laws.looks, laws.longest_over_s
    report.broken += [*kills.broken, *dict.fromkeys(laws.broken), *report.answers.unexplained]
    return report


async def _for(seconds: float, work: Coroutine[Any, Any, None], watching: asyncio.Future[Any]) -> None:
    """Do ``work`` for so long. What fails meanwhile, here or among those who watch, is raised at once."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task, watching], timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for each in done:
            each.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _nothing() -> None:
    await asyncio.Event().wait()


async def _until(is_so: Callable[[], bool], within_s: float) -> bool:
    ends_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > ends_s:
            return False
        await asyncio.sleep(0.2)
    return True


def _is_whole(stage: Stage, models: list[str], cards: int) -> bool:
    """Whether every Pod is ready, and every claim Active and routed."""
    phases = _phases(stage)
    all_active = all(phases.get(model) == "Active" for model in models)
    return all_active and len(stage.ready_pods()) == cards and all(stage.target(model) for model in models)


def _phases(stage: Stage) -> dict[str, str]:
    return {claim["metadata"]["name"]: claim.get("status", {}).get("phase", "") for claim in stage.claims()}
