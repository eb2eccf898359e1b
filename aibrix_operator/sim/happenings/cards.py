"""Cards and drivers that do not do what they should."""

from __future__ import annotations

from aibrix_operator.sim.happening import Stage, fault


@fault("ignored-limit", 3)
def limits_ignored(stage: Stage) -> None:
    """For a while a runtime answers limit writes as done, and nothing changes."""
    found = stage.pick(stage.runtimes())
    if found is None or found[1].ignores_limits:
        return
    ip, runtime = found

    def undo() -> None:
        runtime.ignores_limits = False

    runtime.ignores_limits = True
    stage.tell(f"limits are ignored at {ip} for {stage.lasts(undo):.0f} s")


@fault("unmeasured-card", 2)
def card_blinks(stage: Stage) -> None:
    """For a while a card cannot be measured."""
    found = stage.pick([(ip, r) for ip, r in stage.runtimes() if min(r.usable_bytes) > 0])
    if found is None:
        return
    ip, runtime = found
    sizes = runtime.usable_bytes

    def undo() -> None:
        runtime.usable_bytes = sizes

    runtime.usable_bytes = tuple(-u for u in sizes)  # the sign carries the size meanwhile
    stage.tell(f"the card at {ip} cannot be measured for {stage.lasts(undo):.0f} s")


@fault("full-card", 2)
def card_full(stage: Stage) -> None:
    """For a while a process of nobody's fills a card: an engine there that boots, wakes or maps more dies."""
    found = stage.pick([(ip, r) for ip, r in stage.runtimes() if not r.is_full])
    if found is None:
        return
    ip, runtime = found

    def undo() -> None:
        runtime.is_full = False

    runtime.is_full = True
    stage.tell(f"the card at {ip} is full for {stage.lasts(undo):.0f} s")
