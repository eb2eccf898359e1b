"""Each component of a sandbox has an identity of its own, and the rights that the chart would give it.

So whatever runs here, demos and tests alike, shows a right that is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from aibrix_operator import roles
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.operator.grants import GRANTS
from aibrix_operator.sandbox import control_plane, rights_audit
from aibrix_operator.sandbox.control_plane import ControlPlane

NAMESPACE: Final = "default"
"""Of the accounts, of the Lease, and of what is worked on in one namespace only."""
_API: Final = "rbac.authorization.k8s.io"


def account(component: str) -> str:
    """The user that the API server knows ``component`` as."""
    return f"system:serviceaccount:{NAMESPACE}:{component}"


def kubeconfig(directory: Path, component: str) -> Path:
    """Where :func:`write_kubeconfigs` wrote it, of the control plane in that folder."""
    return control_plane.kubeconfig_path(directory, account(component))


def audit_policy() -> str:
    """For an API server that is to log what components ask of it."""
    return rights_audit.policy(map(account, GRANTS))


def write_kubeconfigs(plane: ControlPlane) -> None:
    """One for each component."""
    for component in GRANTS:
        plane.kubeconfig_for(account(component))


async def grant(cluster: Cluster, options: Collection[str] = ()) -> None:
    """Create the roles and bindings of all components, in a cluster that has none yet.

    ``options``: choices in the chart's values that give more; by default there are none.
    """
    for component, places in roles.rules(GRANTS).items():
        everywhere = [rule for place in ("work", "cluster", *options) for rule in places.get(place, [])]
        here = [*places.get("own", []), *places.get("listed", [])]
        for resource, namespace, body in (
            *_role(component, "Cluster", None, everywhere),
            *_role(component, "", NAMESPACE, here),
        ):
            await cluster.create(resource, namespace, body)


def _role(
    component: str, scope: str, namespace: str | None, rules: list[Object]
) -> Iterator[tuple[Resource, str | None, Object]]:
    if not rules:
        return
    metadata = {"name": f"sandbox-{component}"}
    kind = f"{scope}Role"
    subject = {"apiGroup": _API, "kind": "User", "name": account(component)}
    reference = {"apiGroup": _API, "kind": kind, "name": metadata["name"]}
    yield Resource(_API, "v1", f"{kind.lower()}s"), namespace, {"metadata": metadata, "rules": rules}
    binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
    yield Resource(_API, "v1", f"{kind.lower()}bindings"), namespace, binding
