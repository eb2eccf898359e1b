"""The kinds of objects that StormServices are made of."""

from __future__ import annotations

from aibrix_operator.api import gang, orchestration
from aibrix_operator.cluster.resource import PODS, Resource

STORMSERVICES = Resource(orchestration.GROUP, orchestration.VERSION, "stormservices")
ROLESETS = Resource(orchestration.GROUP, orchestration.VERSION, "rolesets")
PODSETS = Resource(orchestration.GROUP, orchestration.VERSION, "podsets")
SERVICES = Resource("", "v1", "services")
REVISIONS = Resource("apps", "v1", "controllerrevisions")
POD_GROUPS = {scheduler: Resource(kind.group, kind.version, "podgroups") for scheduler, kind in gang.POD_GROUPS.items()}

__all__ = ["PODS", "PODSETS", "POD_GROUPS", "REVISIONS", "ROLESETS", "SERVICES", "STORMSERVICES", "Resource"]
