"""`helm uninstall` in the documented order leaves nothing but what the documentation names."""

from __future__ import annotations

from e2e.api import ApiServer, eventually
from e2e.cluster.conftest import FirstInstall
from e2e.cluster.inventory import inventory
from e2e.cluster.release import NAMESPACE, POOLS, Releases

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
LEASE = ("leases.coordination.k8s.io", NAMESPACE, "aibrix-operator")


def test_nothing_is_left_but_the_definitions_and_the_lease(
    api: ApiServer, releases: Releases, first_install: FirstInstall
):
    kinds = {kind for kind, _, _ in inventory(api)}
    assert kinds >= {"deployments.apps", "clusterroles.rbac.authorization.k8s.io", DEFINITIONS}
    assert first_install.pool.claim("first")

    first_install.pool.remove()
    releases.uninstall()

    eventually("only what is documented is left", lambda: _undocumented(api) == set(), 60.0)
    assert not releases.is_installed
    definitions = {name for kind, _, name in inventory(api) if kind == DEFINITIONS}
    assert "modelclaims.model.aibrix.ai" in definitions
    for name in definitions:
        api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    for namespace in (NAMESPACE, POOLS):
        api.delete(f"/api/v1/namespaces/{namespace}")
    # No finalizer holds them that nobody answers for any more.
    eventually("the namespaces are gone", lambda: not any(_exist(api, NAMESPACE, POOLS)), 60.0)
    eventually("nothing is left", lambda: not inventory(api))


def _undocumented(api: ApiServer) -> set[tuple[str, str, str]]:
    return {entry for entry in inventory(api) if entry[0] != DEFINITIONS and entry != LEASE}


def _exist(api: ApiServer, *namespaces: str) -> list[bool]:
    return [api.exists(f"/api/v1/namespaces/{namespace}") for namespace in namespaces]
