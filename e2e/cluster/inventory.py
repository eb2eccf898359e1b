"""What in a cluster is ours: all in our namespaces, and elsewhere all that carries the release's label."""

from __future__ import annotations

from collections.abc import Iterator

from e2e.api import ApiServer, Refused
from e2e.cluster.release import NAME, NAMESPACE, POOLS

_MADE_BY_KUBERNETES = {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}
_PASSING = {"events", "events.events.k8s.io"}
_INSTANCE = "app.kubernetes.io/instance"

Entry = tuple[str, str, str]
"""(kind as ``deployments.apps``, namespace or "", name)"""


def inventory(api: ApiServer) -> set[Entry]:
    """Without Events, which pass, and without what Kubernetes puts into every namespace."""
    found: set[Entry] = set()
    for kind, path in _listable(api):
        for entry in _list(api, path):
            metadata = entry["metadata"]
            namespace = metadata.get("namespace", "")
            labelled = metadata.get("labels", {}).get(_INSTANCE) == NAME
            if (labelled or namespace in (NAMESPACE, POOLS)) and (kind, metadata["name"]) not in _MADE_BY_KUBERNETES:
                found.add((kind, namespace, metadata["name"]))
    return found


def _listable(api: ApiServer) -> Iterator[tuple[str, str]]:
    """(kind, path) of everything that can be listed, each in its preferred version."""
    groups = [("", "/api/v1")]
    groups += [(g["name"], f"/apis/{g['preferredVersion']['groupVersion']}") for g in api.get("/apis")["groups"]]
    for group, root in groups:
        for resource in api.get(root)["resources"]:
            kind = f"{resource['name']}.{group}".strip(".")
            if "list" in resource["verbs"] and kind not in _PASSING:
                yield kind, f"{root}/{resource['name']}"


def _list(api: ApiServer, path: str) -> list[dict]:
    try:
        return api.get(path)["items"]
    except Refused as error:
        if error.status == 404:  # its definition went while we looked
            return []
        raise
