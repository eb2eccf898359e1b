"""The chart, installed, upgraded and uninstalled by Helm as a user does."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aibrix_operator.sandbox import gateways, tools
from e2e.api import ApiServer, eventually
from e2e.cluster import images, pods
from e2e.gateway import Gateway
from e2e.nodes.provider import Cluster

CHART = Path(__file__).resolve().parents[2] / "charts/aibrix-operator"
NAME = "aibrix"
NAMESPACE = "aibrix-system"
POOLS = "models"
"""Namespace of the warm Pods."""
TOKEN_SECRET = "aibrix-runtime-token"
_SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
VALUES: dict[str, Any] = {
    "image": {"repository": images.REPOSITORY, "pullPolicy": "IfNotPresent"},
    "warmPools": {"namespaces": [POOLS]},
    "operator": {"resources": _SMALL},
    "gateway": {
        "resources": _SMALL,
        "graceSeconds": 5,
        "service": {"type": "NodePort"},
        "envoy": {
            "resources": _SMALL,
            "image": {"repository": images.ENVOY_REPOSITORY, "tag": images.ENVOY_TAG, "pullPolicy": "IfNotPresent"},
        },
    },
}


class HelmError(RuntimeError):
    """Helm refused; the text is what it said."""


@dataclass(frozen=True)
class Releases:
    """The one release of a cluster: its definitions are the cluster's, so there is never a second one."""

    cluster: Cluster
    api: ApiServer
    scratch: Path
    _spans: list[slice] = field(default_factory=list)
    """Of the audit log, in bytes: from where a release was installed to where its removal began, or None."""

    @property
    def is_installed(self) -> bool:
        return bool(json.loads(self.helm("list", "--all", "--output", "json", "--namespace", NAMESPACE)))

    def install(self, chart: Path = CHART, **values: Any) -> None:
        """Install or upgrade, without waiting for any Pod. Both namespaces enforce `restricted`."""
        for namespace in (NAMESPACE, POOLS):
            if not self.api.exists(f"/api/v1/namespaces/{namespace}"):
                pods.make_namespace(self.api, namespace)
        if not self._spans or self._spans[-1].stop is not None:
            self._spans.append(slice(self._log_bytes(), None))
        file = self.scratch / "values.json"
        file.write_text(json.dumps(VALUES | values))
        self.helm("upgrade", "--install", NAME, str(chart), "--namespace", NAMESPACE, "--values", str(file))

    def uninstall(self) -> None:
        """In the documented order: claims first, while the operator cleans up after them; then the release."""
        path = f"/apis/model.aibrix.ai/v1alpha1/namespaces/{POOLS}/modelclaims"
        for claim in self.api.get(path)["items"]:
            self.api.delete(f"{path}/{claim['metadata']['name']}")
        eventually("no claim is left", lambda: not self.api.get(path)["items"], 60.0)
        # What is asked from here on may be denied: Helm removes Roles while Pods still end.
        self._spans[-1] = slice(self._spans[-1].start, self._log_bytes())
        self.helm("uninstall", NAME, "--namespace", NAMESPACE, "--wait", "--timeout", "60s")

    def asked(self) -> list[bytes]:
        """Lines of the audit log of all times at which a release was installed."""
        if self.cluster.audit_log is None:
            return []
        log = self.cluster.audit_log.read_bytes()
        return [line for span in self._spans for line in log[span].splitlines()]

    def _log_bytes(self) -> int:
        return 0 if self.cluster.audit_log is None else self.cluster.audit_log.stat().st_size

    def wait_available(self) -> None:
        """Until every replica of operator and gateway is ready and of the newest template."""
        eventually("operator and gateway are available", lambda: all(map(_is_settled, self._deployments())), 120.0)

    def gateway(self) -> Gateway:
        """The gateway as clients outside of the cluster reach it."""
        service = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}-gateway")
        url = f"http://{self.cluster.node_address}:{service['spec']['ports'][0]['nodePort']}"
        return Gateway(gateways.GatewayAddress("gateway", url, "", ""), "")

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Those that are not being deleted."""
        selector = f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component={component}"
        found = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def helm(self, *arguments: str) -> str:
        homes = {f"HELM_{kind}_HOME": str(self.scratch / "helm" / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        command = [str(tools.find_tool(tools.HELM)), *arguments, "--kubeconfig", str(self.cluster.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **homes})
        if done.returncode != 0:
            raise HelmError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _deployments(self) -> list[dict[str, Any]]:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
        return [self.api.get(f"{path}/{name}") for name in (NAME, f"{NAME}-gateway")]


def _is_settled(deployment: dict[str, Any]) -> bool:
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return seen and counts == [wanted] * 3
