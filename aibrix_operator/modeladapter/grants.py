"""What the controller of ModelAdapters asks of the API server."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.cluster.grant import READ, Grant

_GATEWAY_API = "gateway.networking.k8s.io"
# The former are all in AIBrix's own namespace, the latter in those of adapters: the chart has a role for each.
_HTTP_ROUTES, _REFERENCE_GRANTS = "httpRoutes", "referenceGrants"

GRANTS = (
    Grant(names.MODEL_GROUP, "modeladapters", (*READ, "patch")),  # patch: finalizer and retry annotations
    Grant(names.MODEL_GROUP, "modeladapters/status", ("patch",)),
    Grant("", "pods", READ),
    Grant("", "services", (*READ, "get", "create")),
    Grant("discovery.k8s.io", "endpointslices", (*READ, "get", "create", "update")),
    # An owner reference that blocks its owner's deletion needs the right to set finalizers where that is asked for.
    Grant(names.MODEL_GROUP, "modeladapters/finalizers", ("update",)),
    Grant("", "secrets", ("get",)),  # credentials of artifacts, read as they are needed
    Grant(_GATEWAY_API, "httproutes", ("get", "create", "delete"), option=_HTTP_ROUTES),
    Grant(_GATEWAY_API, "referencegrants", ("get", "create", "delete"), option=_REFERENCE_GRANTS),
    # Whether a namespace still needs its ReferenceGrant.
    Grant("apps", "deployments", ("list",), option=_REFERENCE_GRANTS),
)
