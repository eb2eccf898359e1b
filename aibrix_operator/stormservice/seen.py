"""What a pass looks at: objects of the API server as frozen values. Parsing happens here and nowhere behind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

from aibrix_operator.api import orchestration
from aibrix_operator.api.podset import PodSetSpec, PodSetStatus
from aibrix_operator.api.roleset import RoleSetSpec, RoleSetStatus
from aibrix_operator.api.stormservice import StormServiceSpec, StormServiceStatus
from aibrix_operator.stormservice import naming

Body: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """An object and its metadata. ``body`` is shared with the caches: nobody changes it."""

    body: Body

    @cached_property
    def metadata(self) -> Body:
        """The metadata."""
        found: Body = self.body["metadata"]
        return found

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return str(self.metadata.get("namespace", ""))

    @property
    def uid(self) -> str:
        """The object's UID."""
        return str(self.metadata["uid"])

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels."""
        found: Mapping[str, str] = self.metadata.get("labels") or {}
        return found

    @property
    def annotations(self) -> Mapping[str, str]:
        """The object's annotations."""
        found: Mapping[str, str] = self.metadata.get("annotations") or {}
        return found

    @property
    def is_terminating(self) -> bool:
        """Its deletion was asked for."""
        return "deletionTimestamp" in self.metadata

    @property
    def born(self) -> tuple[str, str]:
        """Creation time and name: what comes later is newer."""
        return str(self.metadata.get("creationTimestamp", "")), self.name

    def has_finalizer(self, finalizer: str) -> bool:
        """Whether ``finalizer`` holds it."""
        return finalizer in self.metadata.get("finalizers", ())

    def is_controlled_by(self, uid: str) -> bool:
        """Whether the object with ``uid`` is its controller."""
        return self.controller_uid == uid

    @property
    def controller_uid(self) -> str:
        """UID of its controller; empty when it has none."""
        return next((str(o["uid"]) for o in self.metadata.get("ownerReferences", ()) if o.get("controller")), "")


@dataclass(frozen=True)
class Pod(Seen):
    """A Pod of a role or of a PodSet."""

    @property
    def status(self) -> Body:
        """The Pod's status."""
        found: Body = self.body.get("status") or {}
        return found

    @property
    def has_ended(self) -> bool:
        """Succeeded or failed."""
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        """Neither ended nor on its way out."""
        return not (self.has_ended or self.is_terminating)

    def condition(self, type_: str) -> str | None:
        """The status of one condition; None when it has none of that type."""
        return next((c.get("status") for c in self.status.get("conditions") or () if c.get("type") == type_), None)

    @property
    def is_ready(self) -> bool:
        """Its condition Ready is True."""
        return self.condition("Ready") == "True"

    @property
    def node(self) -> str:
        """Where it was scheduled; empty before."""
        return str((self.body.get("spec") or {}).get("nodeName") or "")

    @property
    def slot(self) -> int | None:
        """Its replica index; None when it has none that can be read."""
        return index_of(
            self.annotations.get(orchestration.REPLICA_INDEX) or self.labels.get(orchestration.REPLICA_INDEX)
        )

    @property
    def has_restarted(self) -> bool:
        """A container of it was started more than once."""
        return any(c.get("restartCount", 0) > 0 for c in self.status.get("containerStatuses") or ())

    @property
    def is_draining(self) -> bool:
        """It is marked as on its way out of service."""
        return self.annotations.get(orchestration.DRAINING) == "true"


@dataclass(frozen=True)
class PodSet(Seen):
    """A PodSet."""

    @cached_property
    def spec(self) -> PodSetSpec:
        """Raises pydantic's ValidationError."""
        return PodSetSpec.model_validate(self.body.get("spec") or {})

    @cached_property
    def status(self) -> PodSetStatus:
        """What was published last."""
        return PodSetStatus.model_validate(self.body.get("status") or {})

    @property
    def slot(self) -> int | None:
        """Its replica index."""
        return index_of(
            self.annotations.get(orchestration.REPLICA_INDEX) or self.labels.get(orchestration.REPLICA_INDEX)
        )


@dataclass(frozen=True)
class RoleSet(Seen):
    """A RoleSet."""

    @cached_property
    def spec(self) -> RoleSetSpec:
        """Raises pydantic's ValidationError."""
        return RoleSetSpec.model_validate(self.body.get("spec") or {})

    @cached_property
    def status(self) -> RoleSetStatus:
        """What was published last."""
        return RoleSetStatus.model_validate(self.body.get("status") or {})

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        """Role → hash of its Pod template."""
        return {role.name: naming.template_hash(role.template) for role in self.spec.roles}

    @property
    def storm(self) -> str:
        """Name of its StormService; empty for a RoleSet of its own."""
        return self.labels.get(orchestration.STORM_LABEL, "")

    @property
    def revision(self) -> str:
        """Name of the revision that it was made of."""
        return self.annotations.get(orchestration.REVISION_ANNOTATION) or self.labels.get(
            orchestration.STORM_REVISION_LABEL, ""
        )

    @property
    def generation(self) -> int:
        """Counts changes of the spec."""
        return int(self.metadata.get("generation", 0))

    @property
    def is_observed(self) -> bool:
        """Its status is about its present spec."""
        return self.status.observed_generation == 0 or self.status.observed_generation >= self.generation

    @property
    def is_ready(self) -> bool:
        """Its condition Ready is True, and about its present spec."""
        found = orchestration.find_timed(self.status.conditions, orchestration.ConditionType.READY)
        return self.is_observed and found is not None and found.status == "True"


@dataclass(frozen=True)
class StormService(Seen):
    """A StormService."""

    @cached_property
    def spec(self) -> StormServiceSpec:
        """Raises pydantic's ValidationError."""
        return StormServiceSpec.model_validate(self.body.get("spec") or {})

    @cached_property
    def status(self) -> StormServiceStatus:
        """What was published last."""
        return StormServiceStatus.model_validate(self.body.get("status") or {})

    @property
    def generation(self) -> int:
        """Counts changes of the spec."""
        return int(self.metadata.get("generation", 0))


@dataclass(frozen=True)
class Revision(Seen):
    """A ControllerRevision."""

    @property
    def number(self) -> int:
        """Later revisions have greater ones."""
        return int(self.body.get("revision", 0))

    @cached_property
    def template(self) -> Body:
        """The RoleSet template that it keeps."""
        data = self.body.get("data") or {}
        template = dict((data.get("spec") or {}).get("template") or {})
        template.pop("$patch", None)
        return template


class Served(StrEnum):
    """Whether the cluster answers for PodGroups of a scheduler."""

    YES = "served"
    MISSING = "missing"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True)
class PodGroups:
    """PodGroups that belong to one object, as they were read in this pass."""

    served: Served = Served.MISSING
    found: tuple[Body, ...] = ()
    refusal: str = ""
    """What the API server said to our last write of one: none is tried again before they are read again."""

    def named(self, name: str) -> Body | None:
        """The PodGroup of that name."""
        return next((group for group in self.found if group["metadata"]["name"] == name), None)


@dataclass(frozen=True)
class RoleSetView:
    """A RoleSet and all that is in it."""

    roleset: RoleSet
    pods: tuple[Pod, ...] = ()
    """Those that it controls."""
    podsets: tuple[PodSet, ...] = ()
    """Those that it controls."""
    groups: PodGroups = field(default_factory=PodGroups)


@dataclass(frozen=True)
class PodSetView:
    """A PodSet and its members."""

    podset: PodSet
    pods: tuple[Pod, ...] = ()
    groups: PodGroups = field(default_factory=PodGroups)


@dataclass(frozen=True)
class StormView:
    """A StormService and all that it owns directly."""

    storm: StormService
    rolesets: tuple[RoleSet, ...] = ()
    revisions: tuple[Revision, ...] = ()
    service: Seen | None = None
    """The Service of its name, whoever made it."""


S = TypeVar("S", bound=Seen)


class SeenOnce(Generic[S]):
    """Objects of one kind as they were parsed, each version once: bodies in the caches are never changed in place."""

    def __init__(self, make: Callable[[Body], S], most: int = 4096) -> None:
        self._make = make
        self._most = most
        self._known: OrderedDict[str, S] = OrderedDict()

    def of(self, body: Body) -> S:
        """The parsed object; the one that was used least of late is forgotten when there are too many."""
        uid = str(body["metadata"]["uid"])
        known = self._known.get(uid)
        if known is None or known.body is not body:
            known = self._known[uid] = self._make(body)
        self._known.move_to_end(uid)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return known


def index_of(text: str | None) -> int | None:
    """A decimal index from 0; None for anything else."""
    return int(text) if text and text.isascii() and text.isdecimal() else None


def controlled(objects: Sequence[Body], uid: str) -> list[Seen]:
    """Those of ``objects`` whose controller is ``uid``."""
    return [seen for seen in map(Seen, objects) if seen.is_controlled_by(uid)]
