"""What was seen of a cluster at one moment, as frozen values. ``looking`` fills them, ``checks`` judges them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """How a definition in the cluster compares with ours."""

    GOOD = "good"
    MISSING = "missing"
    OTHER = "other"
    """Its schema lacks something of ours: an earlier version's, as a rule."""
    NOT_SERVED = "not served"
    """It is not established: the API server names a reason in its conditions."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One CustomResourceDefinition of ours."""

    name: str
    standing: Standing
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a component may do one thing; None: nobody could be asked."""

    component: str
    verb: str
    resource: str
    namespace: str
    """Empty: in all."""
    is_allowed: bool | None


@dataclass(frozen=True, slots=True)
class ComponentPod:
    """One Pod of the operator or of the gateway."""

    component: str
    namespace: str
    name: str
    is_ready: bool
    reason: str = ""
    """Why a container of it does not run, as the kubelet says."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The operators' election."""

    namespace: str
    name: str
    holder: str
    """Empty: nobody leads, or there is no such Lease."""
    is_renewed: bool
    """It changed while we looked."""
    skew_s: float | None
    """The leader's clock less the API server's, at its last renewal; None where that cannot be told."""


class Runtime(StrEnum):
    """What came of asking a warm Pod's sidecar."""

    READ = "read"
    SILENT = "silent"
    """Nothing answers at its address, from here."""
    REFUSED = "refused"
    """It asks for another token."""
    UNREADABLE = "unreadable"
    NOT_ASKED = "not asked"
    """The Pod does not run."""


@dataclass(frozen=True, slots=True)
class PoolPod:
    """One Pod with a pool's label."""

    namespace: str
    name: str
    pool: str
    is_enabled: bool
    has_sidecar: bool
    """A container of it declares the sidecar's port."""
    gpus: int
    runtime: Runtime
    message: str = ""
    is_open: bool = False
    """It answered without a token."""
    has_cards: bool = True
    """It measures each card."""
    skew_s: float | None = None
    """Its clock less ours."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One Deployment with a policy."""

    namespace: str
    name: str
    error: str
    """What is wrong with the policy; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it."""

    definitions: tuple[Definition, ...] = ()
    permissions: tuple[Permission, ...] = ()
    pods: tuple[ComponentPod, ...] = ()
    lease: Lease | None = None
    """None: it could not be looked at."""
    pool_pods: tuple[PoolPod, ...] = ()
    pools: tuple[Pool, ...] = ()
    unseen: tuple[str, ...] = ()
    """What could not be looked at, and why: a sentence each."""
