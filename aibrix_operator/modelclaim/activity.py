"""How long each engine has been idle. What cannot be read is never idleness."""

from __future__ import annotations

from datetime import timedelta

from aibrix_operator.api.conditions import find_condition
from aibrix_operator.api.modelclaim import ConditionType
from aibrix_operator.modelclaim.accounts import Account, Sitting
from aibrix_operator.modelclaim.draft import Draft
from aibrix_operator.modelclaim.memory import Activity
from aibrix_operator.modelclaim.parse import parse_time
from aibrix_operator.runtime_api.wire import EnginePhase, ModelState


def key_of(pod_uid: str, engine: ModelState) -> str:
    """Under what an engine's activity is remembered; a restarted engine keeps its name."""
    return f"{pod_uid}/{engine.ipc_name}"


def watch(draft: Draft) -> None:
    """Note which engines were busy since the last look, and forget those that their Pod's runtime lists no more."""
    listed: set[str] = set()
    for account in draft.accounts.values():
        _watch_pod(account, draft, listed)
    read = {a.pod.uid for a in draft.accounts.values() if a.pod.reading.snapshot is not None}
    for key in [k for k in draft.activities if k not in listed and k.partition("/")[0] in read]:
        del draft.activities[key]


def _watch_pod(account: Account, draft: Draft, listed: set[str]) -> None:
    """The first sight of an engine counts as busy now. ``listed`` is added to."""
    snapshot, now_s = account.pod.reading.snapshot, draft.now.monotonic_s
    for engine in () if snapshot is None else snapshot.models:
        key = key_of(account.pod.uid, engine)
        listed.add(key)
        before = draft.activities.get(key)
        total = engine.request_success_total
        is_at_rest = (
            engine.phase is EnginePhase.ACTIVE
            and engine.request_metrics_observed
            and engine.requests_running + engine.requests_waiting == 0
        )
        is_idle = is_at_rest and before is not None and before.is_at_rest and total == before.completions
        if not is_idle:
            draft.activities[key] = Activity(now_s, total, is_at_rest)


def busy_now(account: Account, sitting: Sitting, draft: Draft) -> None:
    """Start the idle time of an engine anew: it was found busy in another way than by its metrics."""
    if sitting.engine is not None:
        total = sitting.engine.request_success_total
        draft.activities[key_of(account.pod.uid, sitting.engine)] = Activity(draft.now.monotonic_s, total)


def idle_s(account: Account, sitting: Sitting, draft: Draft) -> float:
    """Seconds since the latest of: its last activity, its last change of phase, its claim's becoming Ready. 0 when
    nothing is known."""
    engine, snapshot = sitting.engine, account.pod.reading.snapshot
    if engine is None or snapshot is None or engine.last_transition is None:
        return 0.0
    known = draft.activities.get(key_of(account.pod.uid, engine))
    ready = find_condition(sitting.claim.status.conditions, ConditionType.READY)
    ready_since = parse_time(ready.last_transition_time) if ready is not None and ready.status == "True" else None
    if known is None or ready_since is None:
        return 0.0
    since_phase = (snapshot.observed_at - engine.last_transition) / timedelta(seconds=1)
    since_ready = (draft.now.wall - ready_since) / timedelta(seconds=1)
    return max(0.0, min(draft.now.monotonic_s - known.busy_s, since_phase, since_ready))
