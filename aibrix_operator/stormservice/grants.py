"""What the controllers of StormServices ask of the API server."""

from __future__ import annotations

from aibrix_operator.api import gang, orchestration
from aibrix_operator.cluster.grant import READ, Grant

_OURS = ("stormservices", "rolesets", "podsets")
# get: whose it is, where the name of what is to be made is taken.
_MADE = ("get", *READ, "create", "delete", "patch")

GRANTS = (
    # patch: finalizers, and what changes in place.
    Grant(orchestration.GROUP, "stormservices", (*READ, "patch")),
    # Their names are the API server's, so none is taken. update: one that is overwritten.
    Grant(orchestration.GROUP, "rolesets", (*READ, "create", "delete", "patch", "update")),
    Grant(orchestration.GROUP, "podsets", _MADE),
    *(Grant(orchestration.GROUP, f"{plural}/status", ("patch",)) for plural in _OURS),
    # An owner reference that blocks its owner's deletion asks for this right on the owner.
    *(Grant(orchestration.GROUP, f"{plural}/finalizers", ("update",)) for plural in _OURS),
    Grant("", "pods", _MADE),
    Grant("", "pods/status", ("patch",)),  # the readiness gate of updates in place
    Grant("", "services", ("get", *READ, "create", "patch")),
    Grant("apps", "controllerrevisions", (*_MADE, "update")),  # update, patch: a new number
    *(
        Grant(kind.group, "podgroups", ("get", "list", "create", "delete", "patch"), option=scheduler.value)
        for scheduler, kind in gang.POD_GROUPS.items()
    ),
)
