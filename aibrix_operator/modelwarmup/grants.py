"""What the controller of ModelWarmups asks of the API server."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.cluster.grant import READ, Grant

GRANTS = (
    Grant(names.MODEL_GROUP, "modelwarmups", READ),
    Grant(names.MODEL_GROUP, "modelwarmups/status", ("patch",)),
    # blockOwnerDeletion of its Jobs; only an API server with OwnerReferencesPermissionEnforcement asks for it.
    Grant(names.MODEL_GROUP, "modelwarmups/finalizers", ("update",)),
    Grant("batch", "jobs", (*READ, "get", "create", "patch", "delete")),
    Grant("", "pods", READ),
    Grant("", "nodes", READ),
    Grant("", "namespaces", READ),
)
