"""What the controllers of StormServices ask of the API server."""

from __future__ import annotations

from aibrix_operator.api import gang, orchestration
from aibrix_operator.cluster.grant import READ, Grant

_OURS = ("stormservices", "rolesets", "podsets")
_MADE = ("get", *READ, "create", "delete", "patch")

GRANTS = (
    # patch: finalizers, and what changes in place. update: a RoleSet that is overwritten.
    *(Grant(orchestration.GROUP, plural, (*_MADE, "update")) for plural in _OURS),
    *(Grant(orchestration.GROUP, f"{plural}/status", ("patch",)) for plural in _OURS),
    # An owner reference that blocks its owner's deletion asks for this right on the owner.
    *(Grant(orchestration.GROUP, f"{plural}/finalizers", ("update",)) for plural in _OURS),
    Grant("", "pods", _MADE),
    Grant("", "pods/status", ("patch",)),  # the readiness gate of updates in place
    Grant("", "services", _MADE),
    Grant("apps", "controllerrevisions", (*_MADE, "update")),  # update: a new number
    *(Grant(kind.group, "podgroups", _MADE) for kind in gang.POD_GROUPS.values()),
)
