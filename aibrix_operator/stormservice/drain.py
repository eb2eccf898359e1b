"""Deletion with care: a Pod is marked, left alone for its drain time, and deleted only then.

Whoever routes sends a marked Pod no new requests. The wait is one of time: nobody asks what is still in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from aibrix_operator.api import orchestration
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.api.orchestration import Reason
from aibrix_operator.controller.steps import Note, Step
from aibrix_operator.stormservice.outline import delete, patch, sooner, tell, warn
from aibrix_operator.stormservice.resources import PODS
from aibrix_operator.stormservice.seen import Pod

_ACTION = "delete"


class DrainReason(StrEnum):
    """Why a Pod goes."""

    SCALE_IN = "scale-in"
    ROLLOUT = "rollout"


@dataclass(slots=True)
class Leave:
    """What becomes of Pods that are to go."""

    steps: list[Step] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    look_again_s: float | None = None

    def take(self, pod: Pod, drain_s: int, reason: DrainReason, now: datetime) -> None:
        """Delete ``pod`` now, or bring it one step nearer to that."""
        if drain_s <= 0 or pod.has_ended:
            self.steps.append(delete(PODS, pod))
            return
        if not pod.is_draining:
            self._mark(pod, drain_s, reason, now)
            return
        began = _began(pod)
        if began is None:
            self.notes.append(
                warn(
                    Reason.DRAIN_INVALID,
                    f"Pod {pod.name}: the marks of its drain cannot be read; the drain begins anew",
                )
            )
            self._mark(pod, drain_s, reason, now)
            return
        left_s = drain_s - max(0.0, (now - began).total_seconds())
        if left_s > 0:
            self.look_again_s = sooner(self.look_again_s, left_s)
            return
        self.steps.append(delete(PODS, pod))
        self.notes.append(tell(Reason.DRAIN_COMPLETED, f"Pod {pod.name} had its {drain_s} s and is deleted"))

    def _mark(self, pod: Pod, drain_s: int, reason: DrainReason, now: datetime) -> None:
        marks = {
            orchestration.DRAINING: "true",
            orchestration.DRAIN_START: rfc3339(now),
            orchestration.DRAIN_REASON: reason.value,
            orchestration.DRAIN_ACTION: _ACTION,
        }
        self.steps.append(patch(PODS, pod, {"metadata": {"annotations": marks}}))
        self.notes.append(tell(Reason.DRAIN_STARTED, f"Pod {pod.name} drains for {drain_s} s ({reason})"))
        self.look_again_s = sooner(self.look_again_s, float(drain_s))

    def spare(self, pods: Iterable[Pod], chosen: frozenset[str], updated: frozenset[str]) -> None:
        """Take the marks off Pods that stay after all.

        A Pod that drains for a scale-in stays when it is not ``chosen``, one that drains for a rollout when it is
        ``updated``: the template went back to its own.
        """
        for pod in pods:
            reason = pod.annotations.get(orchestration.DRAIN_REASON)
            is_spared = reason == DrainReason.SCALE_IN or pod.uid in updated
            if pod.is_active and pod.is_draining and pod.uid not in chosen and is_spared:
                gone = dict.fromkeys(orchestration.DRAIN_MARKS)
                self.steps.append(patch(PODS, pod, {"metadata": {"annotations": gone}}))
                self.notes.append(tell(Reason.DRAIN_CANCELLED, f"Pod {pod.name} is wanted again and stays"))


def _began(pod: Pod) -> datetime | None:
    """When the drain began; None where the marks do not say so, or are about something else."""
    if pod.annotations.get(orchestration.DRAIN_ACTION) != _ACTION:
        return None
    try:
        began = datetime.fromisoformat(pod.annotations.get(orchestration.DRAIN_START, ""))
    except ValueError:
        return None
    return began.astimezone(UTC) if began.tzinfo is not None else None
