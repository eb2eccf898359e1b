"""What a pass sees: one frozen value, built by ``observe`` and read by everything that decides.

Nothing here is looked up again while a pass runs, so equal snapshots give equal plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from aibrix_operator.api.modelclaim import Instance, InstancePhase, ModelClaimSpec, ModelClaimStatus
from aibrix_operator.api.pool_policy import Lifecycle, PoolPolicy
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.steps import RuntimeStep
from aibrix_operator.runtime_api import wire
from aibrix_operator.runtime_api.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a pass: ``wall`` (UTC) for what people read, ``monotonic_s`` for every wait."""

    wall: datetime
    monotonic_s: float


@dataclass(frozen=True, slots=True)
class Claim:
    """One ModelClaim as the watch and our own acknowledged writes have it."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: datetime
    deleting_since: datetime | None
    has_finalizer: bool
    spec: ModelClaimSpec
    status: ModelClaimStatus
    seat: Seat | None
    """None while ``spec.perGPU`` is missing or unusable; ``seat_error`` then says what is wrong."""
    seat_error: str = ""
    parallelism: int = 1
    """GPUs that one instance runs on; 1 when ``engine_error`` is set."""
    engine_error: str = ""
    """Why the engine arguments cannot work."""
    is_writing: bool = False
    """A write of ours to this object is under way: nothing more is decided for it until it is answered."""
    writing_instances: tuple[Instance, ...] = ()
    """What that write would record. It is charged beside ``status.instances``, since either may turn out true."""
    is_retrying: bool = False
    """The last write of ours to this object failed, and may be tried again at any moment."""
    unsure_instances: tuple[Instance, ...] = ()
    """What writes to this version would have recorded of which nobody knows whether they were done."""

    @property
    def model(self) -> str:
        """The name that clients send; an empty one counts as unset."""
        return self.spec.model_name or self.name

    @property
    def is_deleting(self) -> bool:
        return self.deleting_since is not None

    @property
    def is_moving(self) -> bool:
        """Whether it has engines, and every one of them failed: it needs another Pod."""
        instances = self.status.instances
        return bool(instances) and all(i.phase is InstancePhase.FAILED for i in instances)

    @property
    def may_be_placed(self) -> bool:
        """Whether it is declared so that it can run somewhere, and not on its way out."""
        return self.seat is not None and not self.engine_error and not self.is_deleting

    @property
    def unsure_pods(self) -> frozenset[str]:
        """Pods on which only writes of which nobody knows whether they were done would have recorded it."""
        return frozenset(i.pod for i in self.unsure_instances) - {i.pod for i in self.status.instances}

    @property
    def age_key(self) -> tuple[datetime, str]:
        """Oldest first; equal ages by name."""
        return self.created_at, self.name

    def instance_on(self, pod: str) -> Instance | None:
        """The recorded instance on that Pod, or None."""
        return next((i for i in self.status.instances if i.pod == pod), None)


@dataclass(frozen=True, slots=True)
class Reading:
    """The last answer of a Pod's runtime.

    No snapshot and no error means that nothing is known now: not read yet, or discarded because we wrote to the runtime
    since, or it broke off its feed. No snapshot and an error means that it did not answer.
    """

    sequence: int = 0
    snapshot: wire.Snapshot | None = None
    error: str = ""
    is_left_alone: bool = False
    """It timed out a moment ago and is not called for a while; ``error`` is the text that says so."""
    largest_bytes: int = 0
    """The most that this runtime has ever said its card can hold."""

    @property
    def is_pending(self) -> bool:
        return self.snapshot is None and not self.error


@dataclass(frozen=True, slots=True)
class Pool:
    """A warm pool's Deployment and its policy."""

    namespace: str
    deployment: str
    uid: str
    annotation: str = ""
    """The policy as it was written; empty without one."""
    policy: PoolPolicy | None = None
    """None: no policy, or one that cannot be read."""
    error_class: str = ""
    error: str = ""
    """What is wrong with the annotation."""

    @property
    def lifecycle(self) -> Lifecycle | None:
        return None if self.policy is None else self.policy.lifecycle


@dataclass(frozen=True, slots=True)
class Pod:
    """One Pod of the namespace that carries both pool labels, or on which an instance is recorded."""

    namespace: str
    name: str
    uid: str
    ip: str
    labels: Mapping[str, str]
    is_running: bool
    """Phase Running with an IP, and not being deleted."""
    is_ready: bool
    gpu_count: int
    """Sum of the containers' nvidia.com/gpu limits, else requests."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Only route and wake annotations."""
    reading: Reading = field(default_factory=Reading)
    busy_since_s: float | None = None
    """When the runtime step under way was sent; None when there is none."""
    is_annotating: bool = False
    """An annotation patch of ours is under way."""
    owner_uid: str = ""
    """UID of the ReplicaSet that controls it; empty without one."""
    pool: Pool | None = None
    """None when its Deployment is not known: it then counts as one without policy."""

    @property
    def lends_seats(self) -> bool:
        """Whether a sleeper here is charged only what it holds, so that its seat may be given away."""
        lifecycle = None if self.pool is None else self.pool.lifecycle
        return lifecycle is not None and lifecycle.no_wake_reserve_while_asleep


Result: TypeAlias = Outcome[wire.ActivateResponse] | Outcome[wire.DeactivateResponse] | Outcome[wire.OperationResponse]


@dataclass(frozen=True, slots=True)
class Finished:
    """A runtime step that ended since the last pass, told exactly once; losing it (a crash) only delays things."""

    step: RuntimeStep
    result: Result
    """Of several limit writes, the first that was not done, else the last."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """One namespace: all of it, or some of its Pods with the claims on them."""

    namespace: str
    claims: tuple[Claim, ...]
    """Oldest first."""
    pods: Mapping[str, Pod]
    """By name."""
    finished: tuple[Finished, ...] = ()
    is_whole: bool = True
    """False: Pods that need no look are left out. Nothing is placed then, because that weighs all Pods against
    each other; every Pod that a claim in here is recorded on is in here too."""
