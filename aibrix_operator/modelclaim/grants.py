"""What the controller of ModelClaims asks of the API server."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.cluster.grant import READ, Grant

GRANTS = (
    Grant(names.MODEL_GROUP, "modelclaims", (*READ, "patch")),  # patch: the finalizer
    Grant(names.MODEL_GROUP, "modelclaims/status", ("patch",)),
    Grant("", "pods", (*READ, "patch")),  # patch: routes, which are annotations
    Grant("apps", "deployments", READ),
    Grant("apps", "replicasets", READ),
)
