"""What a gateway asks of the API server."""

from __future__ import annotations

from aibrix_operator.api import names
from aibrix_operator.cluster.grant import READ, Grant

GRANTS = (
    Grant("", "pods", (*READ, "patch")),  # patch: the request to wake an engine, an annotation
    Grant(names.MODEL_GROUP, "modelclaims", READ),
    Grant(names.MODEL_GROUP, "modeladapters", READ),
)
