"""Component → all that it may ask of the API server. The chart's roles are rendered from this table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aibrix_operator.cluster.grant import READ, Grant
from aibrix_operator.gateway import grants as gateway
from aibrix_operator.modeladapter import grants as modeladapter
from aibrix_operator.modelclaim import grants as modelclaim
from aibrix_operator.modelwarmup import grants as modelwarmup
from aibrix_operator.stormservice import grants as stormservice

LEASE_NAME = "aibrix-operator"

PROCESS = (
    Grant("coordination.k8s.io", "leases", ("get", "update"), names=(LEASE_NAME,), namespaced_only=True),
    Grant("coordination.k8s.io", "leases", ("create",), namespaced_only=True),
    Grant("", "events", ("create", "patch")),
    # kopf takes up a kind whose definition is installed later. An operator of one namespace goes without.
    Grant("apiextensions.k8s.io", "customresourcedefinitions", READ),
)

GRANTS: Mapping[str, tuple[Grant, ...]] = MappingProxyType(
    {
        "operator": (*PROCESS, *modelclaim.GRANTS, *modeladapter.GRANTS, *modelwarmup.GRANTS, *stormservice.GRANTS),
        "gateway": gateway.GRANTS,
    }
)
