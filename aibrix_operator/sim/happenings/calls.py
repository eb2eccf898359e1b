"""Calls to runtimes that go wrong."""

from __future__ import annotations

import asyncio

from aibrix_operator.runtime_api.outcome import NotSent, Refused, Unknown
from aibrix_operator.sim.happening import Stage, fault
from aibrix_operator.sim.sidecar import Call, Later, Result

_NO_ANSWER: tuple[Result, ...] = (NotSent("no route"), NotSent("left alone", left_alone=True), Unknown("lost"))
_NOT_DONE: tuple[Result, ...] = (Refused("not now", 409), *_NO_ANSWER)
LATEST_S = 5.0
"""How long after its caller gave up a call may still be carried out."""
_SLOW_S = (0.0, 0.1, 1.0, 5.0)


@fault("lost-call", 5)
def calls_lost(stage: Stage) -> None:
    """For a while calls to a runtime are refused, slow, not carried out, or carried out without an answer."""
    found = stage.pick(stage.runtimes())
    if found is None or found[1].before_call is not None or found[1].after_call is not None:
        return
    ip, runtime = found
    chance = stage.chance

    async def before(call: Call) -> Result | None:
        await asyncio.sleep(chance.choice(_SLOW_S))
        return None if chance.random() < 0.5 else chance.choice(_NOT_DONE)

    def undo() -> None:
        runtime.before_call = runtime.after_call = None

    runtime.before_call = before
    runtime.after_call = lambda call: Unknown("the answer is lost") if chance.random() < 0.5 else None
    stage.tell(f"calls to {ip} go wrong for {stage.lasts(undo):.0f} s")


@fault("late-call", 3)
def calls_late(stage: Stage) -> None:
    """For a while some calls to a runtime are carried out only after the operator gave up on them."""
    found = stage.pick(stage.runtimes())
    if found is None or found[1].before_call is not None:
        return
    ip, runtime = found
    chance = stage.chance

    async def before(call: Call) -> Later | None:
        if chance.random() < 0.5:
            return None
        await asyncio.sleep(chance.choice(_SLOW_S))
        return Later(chance.uniform(0.0, LATEST_S))

    def undo() -> None:
        runtime.before_call = None

    runtime.before_call = before
    stage.tell(f"calls to {ip} arrive late for {stage.lasts(undo):.0f} s")


@fault("repeated-call", 3)
def calls_repeated(stage: Stage) -> None:
    """For a while some calls to a runtime are carried out a second time, moments later."""
    found = stage.pick(stage.runtimes())
    if found is None or found[1].after_call is not None:
        return
    ip, runtime = found
    chance = stage.chance

    def after(call: Call) -> Later | None:
        return Later(chance.uniform(0.0, LATEST_S)) if chance.random() < 0.5 else None

    def undo() -> None:
        runtime.after_call = None

    runtime.after_call = after
    stage.tell(f"calls to {ip} are repeated for {stage.lasts(undo):.0f} s")


@fault("silent-runtime", 3)
def snapshots_lost(stage: Stage) -> None:
    """For a while a runtime answers late or not at all when it is read."""
    found = stage.pick(stage.runtimes())
    if found is None or found[1].before_snapshot is not None:
        return
    ip, runtime = found
    chance = stage.chance

    async def before() -> Result | None:
        await asyncio.sleep(chance.choice([0.0, 0.5, 3.0]))
        return None if chance.random() < 0.4 else chance.choice(_NO_ANSWER)

    def undo() -> None:
        runtime.before_snapshot = None

    runtime.before_snapshot = before
    stage.tell(f"{ip} does not answer for {stage.lasts(undo):.0f} s")
