"""The one mutable thing: caches, readers, queues and memories that handlers, passes and steps share.

Every fact here is rebuilt after a restart: claims and Pods from the API server, readings from the runtimes, memory from
both, at the price of a delay.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from aibrix_operator.api.modelclaim import Instance
from aibrix_operator.cluster.backoff import Backoff
from aibrix_operator.cluster.events import EventRecorder
from aibrix_operator.cluster.overlay import Overlay
from aibrix_operator.cluster.resource import Key, Object
from aibrix_operator.cluster.step_queue import StepQueue
from aibrix_operator.cluster.work_queue import WorkQueue
from aibrix_operator.controller.leading import Publisher
from aibrix_operator.modelclaim.attention import Attention, Scope
from aibrix_operator.modelclaim.memory import Memory
from aibrix_operator.modelclaim.parse import parse_claim, parse_pod, parse_pool, slim_pod
from aibrix_operator.modelclaim.readers import Reader, Runtimes
from aibrix_operator.modelclaim.snapshot import Claim, Finished, Pod, Pool

if TYPE_CHECKING:  # metrics read the world, so the world only names them
    from aibrix_operator.modelclaim.metrics import Metrics

T = TypeVar("T")

# ("runtime" | "annotate", Pod UID) or ("claim", claim UID): each lane takes one step at a time.
Lane: TypeAlias = tuple[str, str]

API_STEPS = 32
RUNTIME_STEPS = 512
LEISURE = 9.0
"""Whole passes that nothing waits for come this many times their own length apart."""
RETRIES_S = 10.0
"""What failed is tried again within so long after its wait, or not wanted any more."""
_COOLING = Backoff(initial_s=0.2, max_s=30.0)


class _ParsedOnce(Generic[T]):
    """Objects as frozen values, each version parsed once: an object of the caches is never changed in place."""

    def __init__(self, parse: Callable[[Object], T]) -> None:
        self._parse = parse
        self._known: dict[str, tuple[Object, T]] = {}
        """UID → the object that was parsed, and what it came to."""

    def of(self, obj: Object) -> T:
        """The value of ``obj``. Raises what the parser raises."""
        uid = obj["metadata"].get("uid", "")
        known = self._known.get(uid)
        if known is None or known[0] is not obj:
            known = self._known[uid] = (obj, self._parse(obj))
        return known[1]

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._known.pop(uid, None)


@dataclass(slots=True)
class _Cooling:
    failures: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Unsure:
    """Status writes of one claim that may have been done."""

    resource_version: str
    """What they were made to. Any other version that is seen tells what came of them."""
    instances: tuple[Instance, ...]
    """What they would have recorded, all of them together."""


@dataclass
class World:
    """Everything that a running controller knows. Used within one event loop."""

    cluster: Publisher
    runtimes: Runtimes
    recorder: EventRecorder
    wall: Callable[[], datetime]
    watched_claims: dict[Key, Object] = field(default_factory=dict)
    watched_pods: Mapping[Key, Object] = field(default_factory=dict)
    deployments: Mapping[Key, Object] = field(default_factory=dict)
    """Slimmed by ``parse.slim_deployment``; kept by a watch."""
    replica_sets: Mapping[Key, Object] = field(default_factory=dict)
    """Slimmed by ``parse.slim_replica_set``; kept by a watch."""
    memory: dict[str, Memory] = field(default_factory=lambda: defaultdict(Memory))
    """By namespace; rebuilt from readings and statuses."""
    finished: dict[str, list[Finished]] = field(default_factory=lambda: defaultdict(list))
    """By namespace: runtime steps that ended since the last pass."""
    readers: dict[str, Reader] = field(default_factory=dict)
    """By Pod UID."""
    attention: dict[str, Attention] = field(default_factory=lambda: defaultdict(Attention))
    """By namespace: what the next pass has to look at."""
    seated: dict[str, dict[str, tuple[Key, ...]]] = field(default_factory=dict)
    """By namespace: Pod name → the claims on it, by the last whole pass. Not there while a claim wants a place or is
    on its way to or from one, when every pass is a whole one."""
    whole_pass_s: dict[str, float] = field(default_factory=dict)
    """By namespace: how long the last whole pass took, on the event loop's clock."""
    writing: dict[str, tuple[Instance, ...]] = field(default_factory=dict)
    """Claim UID → what the status write under way would record."""
    unsure: dict[str, Unsure] = field(default_factory=dict)
    """Claim UID → status writes of which nobody knows whether they were done, until another version is seen."""
    cooling: dict[Lane, _Cooling] = field(default_factory=dict)
    """Lanes whose last step to the API server failed, until they may be tried again."""
    unreadable: dict[Key, str] = field(default_factory=dict)
    """Claims that cannot be read → the resourceVersion that was complained about."""
    api_steps: StepQueue[Lane] = field(init=False)
    runtime_steps: StepQueue[Lane] = field(init=False)
    passes: WorkQueue[str] = field(init=False)
    """Keys are namespaces; set by ``reconcile.attach``."""
    metrics: Metrics = field(init=False)
    """Set by ``reconcile.attach``."""
    audit_due_s: dict[str, float] = field(default_factory=dict)
    """By namespace: when the ledger's laws are checked on all cards again."""
    audit_suspects: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """By namespace: name of a Pod on whose card a law is broken → since when, or when that was counted last."""
    observed_pods: dict[str, tuple[Pod, Pod]] = field(default_factory=dict)
    """Pod UID → the parsed Pod, and what the last pass that looked at it made of it: mostly it is the same again."""
    claims: Overlay = field(init=False)
    pods: Overlay = field(init=False)
    list_pods: Callable[[], Awaitable[None]] = field(init=False)
    """Set by ``use_pods``."""
    is_synced: bool = False
    """Whether all claims and Pods have been listed; no pass runs before."""
    _claims: _ParsedOnce[Claim] = field(default_factory=lambda: _ParsedOnce(parse_claim))
    _pods: _ParsedOnce[Pod] = field(default_factory=lambda: _ParsedOnce(parse_pod))
    _pools: _ParsedOnce[Pool] = field(default_factory=lambda: _ParsedOnce(parse_pool))

    def __post_init__(self) -> None:
        """Lay our writes over the caches."""
        self._make_queues()

    def start_afresh(self) -> None:
        """As after a restart, but with the caches that watches keep. For a new term of leading; nothing is under way.

        Readings go too: those to come are later than our term's first call to each runtime, which a former leader's
        calls do not get past.
        """
        for reader in self.readers.values():
            reader.stop()
        for of_the_last_term in (
            *(self.memory, self.finished, self.readers, self.writing, self.cooling, self.unreadable),
            *(self.attention, self.seated, self.audit_due_s, self.audit_suspects, self.whole_pass_s),
            self.observed_pods,
        ):
            of_the_last_term.clear()
        self._make_queues()

    def _make_queues(self) -> None:
        self.claims = Overlay(self.watched_claims)
        self.pods = Overlay(self.watched_pods, slim_pod)
        self.api_steps = StepQueue("api", concurrency=API_STEPS)
        self.runtime_steps = StepQueue("runtime", concurrency=RUNTIME_STEPS)

    def use_pods(self, watched: Mapping[Key, Object], list_anew: Callable[[], Awaitable[None]]) -> None:
        """Read Pods from this cache, which a watch keeps. ``list_anew`` brings it to what the API server has now, and
        may raise ClusterError."""
        self.watched_pods, self.list_pods = watched, list_anew
        self.pods = Overlay(watched, slim_pod)

    def monotonic_s(self) -> float:
        """The event loop's clock, which every wait is counted on."""
        return asyncio.get_running_loop().time()

    def claim_of(self, body: Object) -> Claim:
        """The parsed claim. Raises UnreadableClaim."""
        return self._claims.of(body)

    def pod_of(self, slim: Object) -> Pod:
        """The parsed Pod."""
        return self._pods.of(slim)

    def pool_of(self, slim: Object) -> Pool:
        """The parsed pool of a Deployment."""
        return self._pools.of(slim)

    def forget_claim(self, uid: str) -> None:
        """The claim is gone."""
        self._claims.forget(uid)
        self.writing.pop(uid, None)
        self.unsure.pop(uid, None)

    def forget_pod(self, uid: str) -> None:
        """The Pod is gone."""
        self._pods.forget(uid)
        self.observed_pods.pop(uid, None)
        reader = self.readers.pop(uid, None)
        if reader is not None:
            reader.stop()

    def may_have_written(self, uid: str, resource_version: str, instances: tuple[Instance, ...]) -> None:
        """The answer to a status write was lost."""
        before = self.unsure.get(uid)
        is_same = before is not None and before.resource_version == resource_version
        earlier = before.instances if before is not None and is_same else ()
        self.unsure[uid] = Unsure(resource_version, (*(i for i in earlier if i not in instances), *instances))

    def look(self, namespace: str, pods: Iterable[str] | None = None) -> None:
        """Have a pass look at these Pods at once; None: at everything."""
        self.attention[namespace].mark(pods)
        self.passes.wake(namespace)

    def look_after(self, namespace: str, seconds: float, scope: Scope = None) -> None:
        """As ``look``, after ``seconds``."""
        self.attention[namespace].mark_at(self.monotonic_s() + seconds, scope)
        self.passes.wake_after(namespace, seconds)

    def look_leisurely(self, namespace: str, pods: Iterable[str] | None) -> None:
        """As ``look``, for what nothing waits for: so late that such passes take a tenth of the time at most."""
        scope = None if pods is None else frozenset(pods)
        self.look_after(namespace, LEISURE * self.whole_pass_s.get(namespace, 0.0), scope)

    def cool(self, lane: Lane) -> float:
        """A step to the API server failed: leave its lane alone for a while, longer each time. Returns the seconds."""
        before = self.cooling.get(lane)
        failures = 1 if before is None else before.failures + 1
        wait_s = _COOLING.delay_s(failures)
        self.cooling[lane] = _Cooling(failures, self.monotonic_s() + wait_s)
        return wait_s

    def is_retrying(self, lane: Lane) -> bool:
        """Whether its last step failed so lately that nothing says yet that nobody wants it any more."""
        cooling = self.cooling.get(lane)
        return cooling is not None and self.monotonic_s() <= cooling.until_s + RETRIES_S

    def cooling_s(self, lane: Lane) -> float:
        """For how long the lane is still left alone; 0 when it is not."""
        cooling = self.cooling.get(lane)
        return 0.0 if cooling is None else max(0.0, cooling.until_s - self.monotonic_s())
