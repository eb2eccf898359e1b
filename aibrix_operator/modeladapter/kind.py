"""The kind as the frame of controllers sees it: what it reads, how it looks, and its plan in the frame's steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.api.modeladapter import API_KEY, MODELADAPTER
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import (
    ENDPOINT_SLICES,
    MODEL_ADAPTERS,
    PODS,
    SERVICES,
    Key,
    Object,
    Resource,
    key_of,
)
from aibrix_operator.cluster.watch import Change
from aibrix_operator.controller.cache import Selection, owner_uid
from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.kind import Reads, View, children
from aibrix_operator.controller.steps import (
    Call,
    Create,
    Finished,
    Moment,
    Note,
    Patch,
    Plan,
    Ref,
    Replace,
    SetFinalizer,
    SetStatus,
    Step,
)
from aibrix_operator.modeladapter import decide as deciding
from aibrix_operator.modeladapter import objects, parse, steps
from aibrix_operator.modeladapter.calls import Calls, EngineCall, RouteAnswer, RouteCall
from aibrix_operator.modeladapter.engines import Access, Answer, Engines
from aibrix_operator.modeladapter.known import Known
from aibrix_operator.modeladapter.memory import Memory
from aibrix_operator.modeladapter.readers import Door, Readers
from aibrix_operator.modeladapter.snapshot import (
    Adapter,
    Called,
    PodFacts,
    Refusal,
    RouteCalled,
    Snapshot,
    Verdict,
)

log = logging.getLogger(__name__)

ROUTE_LANE = "route"
REFUSED_AGAIN_S = 10.0
POD_SELECTION = Selection(PODS, slim=parse.slim_pod)


class ModelAdapters:
    """``controller.kind.Kind``. What it keeps beside its caches lasts a term, and is read anew after it."""

    name = "modeladapter"
    kind = MODELADAPTER.kind
    resource = MODEL_ADAPTERS
    fresh = Memory()

    def __init__(self, hub: Hub, engines: Engines, policy: Policy, *, uses_sidecar: bool) -> None:
        """``uses_sidecar``: Pods that have one are called through it."""
        self._hub = hub
        self._engines = engines
        self._policy = policy
        self._uses_sidecar = uses_sidecar
        self._calls = Calls(engines, hub)
        self._known = Known()
        self._readers: Readers | None = None
        self._look: Callable[[Key], None] = lambda key: None
        hub.caches.own(MODEL_ADAPTERS).listen(self._adapter_changed)
        hub.caches.of(POD_SELECTION).listen(self._known.pod_changed)

    # --- terms

    def start(self, look: Callable[[Key], None]) -> None:
        """A term begins: ask engines anew. ``look`` wakes a pass."""
        self._look = look
        self._readers = Readers(self._engines, look, reads_work=self._policy.is_by_work)
        self._known.forget_choices()

    async def stop(self) -> None:
        """No more questions."""
        readers, self._readers = self._readers, None
        if readers is not None:
            await readers.stop()

    # --- what is read

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Pods of any label, and what we make."""
        made = partial(children, owner_kind=self.kind, label_selector=names.ADAPTER_NAME_LABEL)
        return (Reads(POD_SELECTION, self._pod_wakes), made(SERVICES), made(ENDPOINT_SLICES))

    def _adapter_changed(self, change: Change, old: Object | None, new: Object | None) -> None:
        self._known.adapter_changed(change, old, new)
        obj = new if new is not None else old
        if obj is None:
            return
        key = key_of(obj)
        if new is None and self._readers is not None:
            self._readers.want(key, key[1], ())
        if old is None or new is None or "deletionTimestamp" in new["metadata"]:
            # Who has the name may be another now.
            for namesake in self._known.namesakes(key[1]):
                if namesake != key:
                    self._look(namesake)

    def _pod_wakes(self, change: Change, old: Object | None, new: Object | None) -> Iterable[Key]:
        if old is not None and new is not None and not parse.is_another(old, new):
            return ()
        pod = new if new is not None else old
        assert pod is not None, "a change has the object before or after it"
        return self._known.adapters_about(key_of(pod), [p["metadata"]["labels"] for p in (old, new) if p is not None])

    # --- observe

    def observe(self, view: View) -> Snapshot | None:
        """All that concerns the adapter, as it is known now."""
        adapter = self._known.adapter(view.own)
        key = (adapter.namespace, adapter.name)
        if adapter.is_deleting and not adapter.has_finalizer:
            if self._readers is not None:
                self._readers.want(key, adapter.name, ())
            return None
        pods = self._pods(adapter)
        slices = [body for body in view.children(ENDPOINT_SLICES) if "deletionTimestamp" not in body["metadata"]]
        services = [body for body in view.children(SERVICES) if "deletionTimestamp" not in body["metadata"]]
        ended = [_called(one, view.now) for one in view.finished if _is_engine_call(one)]
        return Snapshot(
            adapter=adapter,
            pods=pods,
            has_service=bool(services),
            slices=parse.parse_slices(slices),
            slice_versions={body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in slices},
            refusal=_refusal(view.finished, adapter.uid, view.now),
            name_holder=self._known.older_namesake(view.own),
            called=ended,
            in_flight=frozenset(view.calls - {ROUTE_LANE}),
            route_called=_route_called(view.finished, view.now),
            is_route_in_flight=ROUTE_LANE in view.calls,
            now_s=view.now.monotonic_s,
        )

    def _pods(self, adapter: Adapter) -> list[PodFacts]:
        named = {*adapter.status.instances, *(entry.pod for entry in adapter.status.loaded)}
        others = self._known.adapters_by_pod(adapter, self._hub.wall()) if _chooses(adapter) else {}
        found, doors = [], []
        for name, pod in sorted(self._known.pods(adapter.namespace).items()):
            is_selected = adapter.spec is not None and adapter.spec.pod_selector.matches(pod["metadata"]["labels"])
            if not (is_selected or name in named):
                continue
            target = parse.parse_target(pod, uses_sidecar=self._uses_sidecar)
            is_terminating = "deletionTimestamp" in pod["metadata"]
            door = Door(target, _access(adapter))
            ready_since = parse.ready_since(pod)
            if target.ip and not is_terminating:
                doors.append(door)  # also one that is not ready: whether it still has the adapter matters
            facts = PodFacts(
                target=target,
                created_at=parse.created_at(pod),
                ready_since=ready_since,
                is_terminating=is_terminating,
                is_selected=is_selected,
                other_adapters=others.get(name, 0),
            )
            found.append((facts, door))
        if self._readers is None:
            return [facts for facts, _ in found]
        self._readers.want((adapter.namespace, adapter.name), adapter.name, doors)
        return [_with_listing(facts, self._readers, door, adapter) for facts, door in found]

    # --- decide

    def decide(self, snapshot: Snapshot, memory: Memory, now: Moment) -> tuple[Plan, Memory]:
        """The pure decision, in the frame's steps."""
        plan, memory = deciding.decide(snapshot, memory, now.wall, self._policy)
        notes = [Note(step.type, step.reason, step.message) for step in plan.steps if isinstance(step, steps.Tell)]
        translated = tuple(self._translate(snapshot, plan.steps, now))
        return Plan(translated, tuple(notes), plan.look_after_s), memory

    def _translate(self, snapshot: Snapshot, planned: Sequence[steps.Step], now: Moment) -> Iterator[Step]:
        adapter = snapshot.adapter
        key = (adapter.namespace, adapter.name)
        for step in planned:
            match step:
                case steps.AddFinalizer() | steps.RemoveFinalizer():
                    yield SetFinalizer(names.ADAPTER_FINALIZER, isinstance(step, steps.AddFinalizer))
                case steps.Annotate():
                    chosen = step.annotations.get(names.SCHEDULED_PODS_ANNOTATION)
                    if chosen:
                        self._known.choose(key, chosen.split(","), now.wall)
                    ref = Ref(adapter.namespace, adapter.name, adapter.uid)
                    yield Patch(MODEL_ADAPTERS, ref, {"metadata": {"annotations": dict(step.annotations)}})
                case steps.Publish():
                    yield SetStatus(step.status.to_patch())
                case steps.CreateService():
                    yield Create(SERVICES, objects.service(adapter))
                case steps.WriteSlice():
                    yield _slice_step(snapshot, step)
                case steps.MakeRoute() | steps.RemoveRoute():
                    is_needed = self._known.has_other_routes(key)
                    yield Call(ROUTE_LANE, RouteCall(isinstance(step, steps.MakeRoute), adapter, is_needed))
                case steps.Load() | steps.Unload():
                    yield Call(step.target.uid, _engine_call(adapter, step))
                case steps.Tell():
                    continue  # a note

    # --- perform

    async def perform(self, call: Call) -> Any:
        """Carry out a call; what comes back is read by ``observe``."""
        if isinstance(call.what, RouteCall):
            return await self._calls.route(call.what)
        assert isinstance(call.what, EngineCall), f"no such call: {call}"
        answer = await self._calls.engine(call.what)
        ended_at_s = asyncio.get_running_loop().time()
        if self._readers is not None:
            door = Door(call.what.target, call.what.access)
            self._readers.touched(door, call.what.key[1], ended_at_s)
            if answer.verdict is Verdict.UNKNOWN:
                self._readers.ask_soon(call.what.key, door)
            elif answer.verdict is Verdict.DONE:
                self._readers.did(call.what.key, door, loaded=call.what.loads)
        return answer, ended_at_s


def _chooses(adapter: Adapter) -> bool:
    """Whether a Pod may have to be chosen, and so how many adapters each has matters."""
    return adapter.spec is not None and len(adapter.status.instances) < (adapter.spec.replicas or 0)


def _access(adapter: Adapter) -> Access:
    config = (adapter.spec.additional_config if adapter.spec is not None else None) or {}
    return Access(config.get(API_KEY, ""))


def _with_listing(facts: PodFacts, readers: Readers, door: Door, adapter: Adapter) -> PodFacts:
    return PodFacts(
        target=facts.target,
        created_at=facts.created_at,
        ready_since=facts.ready_since,
        is_terminating=facts.is_terminating,
        is_selected=facts.is_selected,
        listing=readers.listing((adapter.namespace, adapter.name), door, adapter.name),
        other_adapters=facts.other_adapters,
        work=readers.work(door),
    )


def _engine_call(adapter: Adapter, step: steps.Load | steps.Unload) -> EngineCall:
    spec, loads = adapter.spec, isinstance(step, steps.Load)
    secret = spec.credentials_secret_ref.name if spec is not None and spec.credentials_secret_ref is not None else ""
    return EngineCall(
        key=(adapter.namespace, adapter.name),
        loads=loads,
        target=step.target,
        artifact_url=step.artifact_url if isinstance(step, steps.Load) else "",
        access=_access(adapter),
        secret=secret if loads else "",
        additional_config=(spec.additional_config if spec is not None and loads else None) or {},
    )


def _slice_step(snapshot: Snapshot, step: steps.WriteSlice) -> Step:
    body = objects.endpoint_slice(snapshot.adapter, step.port, step.addresses)
    version = snapshot.slice_versions.get(body["metadata"]["name"])
    if version is None:
        return Create(ENDPOINT_SLICES, body)
    return Replace(ENDPOINT_SLICES, {**body, "metadata": {**body["metadata"], "resourceVersion": version}})


# --- what ended


def _is_engine_call(ended: Finished) -> bool:
    return isinstance(ended.step, Call) and isinstance(ended.step.what, EngineCall)


def _called(ended: Finished, now: Moment) -> Called:
    assert isinstance(ended.step, Call), "only calls to engines come here"
    call: EngineCall = ended.step.what
    if ended.error is not None:
        log.error("a call to pod %s failed", call.target.pod, exc_info=ended.error)
        answer, ended_at_s = Answer(Verdict.UNKNOWN, f"the call failed: {type(ended.error).__name__}"), now.monotonic_s
    else:
        answer, ended_at_s = ended.value
    return Called(
        pod_uid=call.target.uid,
        loads=call.loads,
        artifact_url=call.artifact_url,
        verdict=answer.verdict,
        message=answer.message,
        ended_at_s=ended_at_s,
        ended_at=now.wall,
    )


def _route_called(finished: Sequence[Finished], now: Moment) -> RouteCalled | None:
    for ended in finished:
        if isinstance(ended.step, Call) and isinstance(ended.step.what, RouteCall):
            is_lost = ended.error is not None
            answer = RouteAnswer(f"the call failed: {type(ended.error).__name__}") if is_lost else ended.value
            if answer.error:
                log.warning("route of %s: %s", ended.step.what.adapter.name, answer.error)
            return RouteCalled(ended.step.what.makes, answer.error, now.monotonic_s, answer.is_forbidden)
    return None


def _refusal(finished: Sequence[Finished], uid: str, now: Moment) -> Refusal | None:
    """The API server's no to what we make. That it is there, and ours, is none."""
    for ended in finished:
        step = ended.step
        if isinstance(step, Call):
            continue
        if not (isinstance(step, Create | Replace) and step.resource in (SERVICES, ENDPOINT_SLICES)):
            log.warning("refused: %s", ended.error)
            continue
        message = str(ended.error)
        if isinstance(ended.error, errors.AlreadyExists) and ended.found is not None:
            if owner_uid(ended.found) == uid:
                continue
            message = f"{_kind_of(step.resource)} {step.body['metadata']['name']} is there and belongs to another"
        return Refusal(step.resource == SERVICES, message, now.monotonic_s + REFUSED_AGAIN_S)
    return None


def _kind_of(resource: Resource) -> str:
    return "Service" if resource == SERVICES else "EndpointSlice"
