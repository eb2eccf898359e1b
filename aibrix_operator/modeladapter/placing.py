"""On which Pods the adapter stays, where it is loaded, and where it is let go. Pure.

A Pod is among those that *stay* while its engine has the adapter as the spec wants it. One that lost it (its engine
restarted, another hand unloaded it) stays for one try to load it again, so that a restart does not make the status
flap; when that fails it is dropped, because nothing may be sent to an engine that lacks the adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.api.modeladapter import Reason
from aibrix_operator.modeladapter.holding import Held, Standing
from aibrix_operator.modeladapter.scheduling import STABLE_S, choose, is_awaited, is_stable, why_none
from aibrix_operator.modeladapter.snapshot import Adapter, Verdict


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why no Pod can be chosen."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Placing:
    """What follows for the Pods."""

    candidates: int
    desired: int
    stays: tuple[Standing, ...]
    """Oldest first, as in the status; then what was found or loaded since, by name."""
    lost: tuple[Standing, ...] = ()
    """Of these, those that lack it and get one try."""
    loads: tuple[Standing, ...] = ()
    unloads: tuple[Standing, ...] = ()
    scheduled: tuple[str, ...] | None = None
    """Pods to write into the annotation; None: leave it."""
    chosen: tuple[str, ...] = ()
    """Pods that the annotation names now."""
    is_scaled_down: bool = False
    hindrance: Hindrance | None = None
    """Why none can be chosen now; None: nothing hinders."""
    look_after_s: float | None = None


def place(
    adapter: Adapter, standings: Sequence[Standing], policy: Policy, now: datetime, *, is_wanted: bool
) -> Placing:
    """``is_wanted`` False: on no Pod at all."""
    assert adapter.spec is not None, "what cannot be read is not placed"
    active = [each for each in standings if each.pod.is_active]
    desired = adapter.spec.replicas or len(active)
    stays, lost = _staying(adapter, active) if is_wanted else ([], [])
    stays, is_scaled_down = stays[:desired], len(stays) > desired
    if is_wanted and len(stays) >= desired and not is_scaled_down:
        stays = _without_first_outdated(stays, adapter.spec.artifact_url)
    found = [each for each in active if is_wanted and each not in stays and _is_found(each, adapter.spec.artifact_url)]
    stays += found[: desired - len(stays)]
    lost = [each for each in lost if each in stays]
    base = Placing(len(active), desired, tuple(stays), tuple(lost), is_scaled_down=is_scaled_down)
    most = desired if is_wanted else 0
    unloads = tuple(each for each in standings if _is_to_let_go(adapter, each, stays, most))
    if not is_wanted:
        return Placing(len(active), desired, (), unloads=unloads)
    if adapter.spec.replicas is None:
        return _load_on_all(base, active, unloads, now)
    return _load_on_some(base, adapter, active, unloads, policy, now)


def _staying(adapter: Adapter, active: Sequence[Standing]) -> tuple[list[Standing], list[Standing]]:
    """Those of the status that stay, and those of them that lack it."""
    by_name = {each.name: each for each in active}
    stays, lost = [], []
    for name in dict.fromkeys(adapter.status.instances):
        each = by_name.get(name)
        if each is None or each.held is Held.BASE:
            continue
        if each.held is Held.NO and not each.is_in_flight:
            if each.has_failed:
                continue
            lost.append(each)
        stays.append(each)
    return stays, lost


def _without_first_outdated(stays: list[Standing], artifact_url: str) -> list[Standing]:
    """``stays`` without the first Pod that has it from another address: it comes back with the new one.

    One at a time, and only while all that are wanted are there: an address that does not load stops at the first Pod.
    """
    outdated = next((each for each in stays if each.loaded_from not in ("", artifact_url)), None)
    return [each for each in stays if each is not outdated]


def _is_found(standing: Standing, artifact_url: str) -> bool:
    return standing.held is Held.YES and not standing.is_in_flight and standing.loaded_from in ("", artifact_url)


def _is_to_let_go(adapter: Adapter, standing: Standing, stays: Sequence[Standing], most: int) -> bool:
    """Whether its engine is told to unload it: once, after the status has let go of the Pod."""
    assert adapter.spec is not None, "what cannot be read is not placed"
    pod = standing.pod
    if standing in stays or standing.is_in_flight or pod.is_terminating or not pod.target.ip:
        return False
    if standing.name in adapter.status.instances or not _is_ours(standing):
        return False
    if not pod.is_selected:
        return True
    if pod.ready_since is None:
        return False  # it may come back with what it has
    is_outdated = standing.loaded_from not in ("", adapter.spec.artifact_url)
    return is_outdated or len(stays) >= most


def _is_ours(standing: Standing) -> bool:
    """Whether we had it loaded there and have not had it unloaded since, as far as anybody knows."""
    if standing.word is not None and not standing.word.loads:
        return standing.held is Held.YES  # it was told to, and has it all the same
    was_told = standing.word is not None and standing.word.verdict in (Verdict.DONE, Verdict.UNKNOWN)
    return (bool(standing.loaded_from) or was_told) and standing.held is not Held.NO


def _load_on_all(base: Placing, active: Sequence[Standing], unloads: tuple[Standing, ...], now: datetime) -> Placing:
    missing = [each for each in active if each not in base.stays] + list(base.lost)
    loads = tuple(each for each in missing if _is_loadable(each, unloads) and each.tries.due_in_s(now) <= 0)
    waits = [each.tries.due_in_s(now) for each in missing if _is_loadable(each, unloads) and each not in loads]
    return Placing(
        base.candidates,
        base.desired,
        base.stays,
        base.lost,
        loads,
        unloads,
        is_scaled_down=base.is_scaled_down,
        look_after_s=min(waits, default=None),
    )


def _is_loadable(standing: Standing, unloads: Sequence[Standing]) -> bool:
    """Whether its engine is known to lack it, and may be told to load it."""
    is_free = not standing.is_in_flight and standing not in unloads
    return is_free and standing.held is Held.NO and not standing.tries.is_given_up


def _load_on_some(
    base: Placing,
    adapter: Adapter,
    active: Sequence[Standing],
    unloads: tuple[Standing, ...],
    policy: Policy,
    now: datetime,
) -> Placing:
    """At most as many Pods as are missing are tried at once, those in flight and those without an answer among them."""
    others = [each for each in active if each not in base.stays]
    unanswered = [each for each in others if each.is_in_flight or _may_have_it(each)]
    missing = base.desired - len(base.stays) - len(unanswered)
    loadable = [each for each in others if _is_loadable(each, unloads)]
    due = [each for each in loadable if each.tries.due_in_s(now) <= 0]
    stable = [each for each in due if is_stable(each.pod, now)]
    written = [name for name in adapter.annotations.get(names.SCHEDULED_PODS_ANNOTATION, "").split(",") if name]
    chosen = [each for each in due if each.name in written][: max(missing, 0)]
    hopeful = [each for each in others if each.name in written and each.held is Held.NOT_KNOWN]
    rest = [each.pod for each in stable if each not in chosen]
    more = missing - len(chosen) - len(hopeful)
    picked = {pod.name for pod in choose(policy, adapter.uid, rest, max(more, 0))}
    newly = tuple(sorted(picked - set(written)))
    unheard = [each for each in others if each.pod.listing is None or is_awaited(policy, each.pod)]
    has_to_wait = any(is_stable(each.pod, now) for each in unheard)
    if written or has_to_wait:
        # A Pod was chosen and did not take it: the others follow without another choice.
        chosen += [each for each in stable if each.name in picked and written]
        newly = ()
    is_idle = not (base.stays or written or unanswered or has_to_wait or newly)
    waits = [each.tries.due_in_s(now) for each in loadable if each not in due]
    waits += [_stable_in_s(each, now) for each in due if each not in stable]
    return Placing(
        base.candidates,
        base.desired,
        base.stays,
        base.lost,
        (*base.lost, *chosen),
        unloads,
        scheduled=_annotation(() if len(base.stays) >= base.desired else others, written, newly),
        chosen=tuple(each.name for each in others if each.name in written),
        is_scaled_down=base.is_scaled_down,
        hindrance=_hindrance(others, stable, policy) if missing > 0 and is_idle else None,
        look_after_s=min(waits, default=None),
    )


def _may_have_it(standing: Standing) -> bool:
    word = standing.word
    return standing.held is Held.NOT_KNOWN and word is not None and word.loads and word.verdict is Verdict.UNKNOWN


def _stable_in_s(standing: Standing, now: datetime) -> float:
    assert standing.pod.ready_since is not None, "an active Pod is ready"
    return STABLE_S - (now - standing.pod.ready_since).total_seconds()


def _annotation(others: Sequence[Standing], written: Sequence[str], newly: tuple[str, ...]) -> tuple[str, ...] | None:
    """What it is to say; None: as it is. Who has it, is gone or is not needed is not scheduled any more."""
    if not written:
        return newly or None
    there = {each.name for each in others}
    kept = tuple(name for name in written if name in there)
    return None if kept == tuple(written) else kept


def _hindrance(others: Sequence[Standing], stable: Sequence[Standing], policy: Policy) -> Hindrance | None:
    if stable:
        return Hindrance(Reason.INSUFFICIENT_READY_PODS, why_none(policy, [each.pod for each in stable]))
    if any(each.trouble for each in others):
        return None  # the failures tell why
    return Hindrance(Reason.NO_READY_PODS, "has no ready backend pods available for scheduling")
