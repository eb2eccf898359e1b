"""A warm pool on real nodes: our sidecar's image, engines and cards simulated, GPUs that the nodes say they have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.sim import card
from e2e import pool as words
from e2e.api import ApiServer, eventually
from e2e.cluster import images, pods
from e2e.cluster.release import POOLS, TOKEN_SECRET
from image import rootfs

_PYTHON = f"/usr/local/bin/{rootfs.PYTHON}"
_STANDINS = f"/usr/local/lib/{rootfs.PYTHON}/site-packages/aibrix_operator/sim/standins"
_TOKEN_FOLDER = "/var/run/secrets/aibrix/runtime-token"
_PROFILES = {"default": {"boot_seconds": 0.3, "footprint_bytes": words.AWAKE, "asleep_footprint_bytes": words.ASLEEP}}
_MAKE_CARDS = (
    "import sys; from aibrix_operator.sim import card; card.create('/sim/cards', sys.argv[1:2]);"
    "open('/sim/profiles.json', 'w').write(sys.argv[2])"
)
_ENVIRONMENT = {
    "AIBRIX_RUNTIME_TOKEN_FILE": f"{_TOKEN_FOLDER}/token",
    "AIBRIX_ENGINE_STOP_GRACE_SECONDS": "5",
    "AIBRIX_WEIGHT_CACHE_DIR": "/tmp/weights",
    "AIBRIX_SIM_PROFILES": "/sim/profiles.json",
    card.CARDS_ENV: "/sim/cards",
    "ENABLE_KVCACHED": "false",
    "KVCACHED_AUTOPATCH": "0",
    "HOME": "/tmp",
    # Before the packages, so that the stand-ins are found instead of the real NVML.
    "PYTHONPATH": _STANDINS,
}
_MOUNTS = {
    "sim": "/sim",
    "registry": "/var/run/aibrix",
    "runtime-token": _TOKEN_FOLDER,
    "shm": "/dev/shm",
    "tmp": "/tmp",
}
"""Volume → where it is in the container."""


def advertise_gpus(api: ApiServer, nodes: list[str], count: int) -> None:
    """Say that each node has so many GPUs, as Kubernetes documents for extended resources."""
    told = {names.GPU_RESOURCE: str(count)}
    for node in nodes:
        api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": told, "allocatable": told}})


@dataclass(frozen=True)
class WarmPool:
    """A Deployment of warm Pods in the namespace of pools, each with one card of 24 GiB."""

    api: ApiServer
    name: str

    @staticmethod
    def create(
        api: ApiServer, name: str, replicas: int, *, node: str | None = None, preferred: str | None = None
    ) -> WarmPool:
        """On any node, on ``node`` alone, or on ``preferred`` while it takes Pods."""
        made = deployment(name, replicas)
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node or preferred]}]}]
        affinity: dict[str, Any] = {}
        if node is not None:
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        elif preferred is not None:
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 100, "preference": terms[0]}]
        made["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": affinity}
        api.create(f"/apis/apps/v1/namespaces/{POOLS}/deployments", made)
        return WarmPool(api, name)

    def pods(self) -> list[dict[str, Any]]:
        """Those that are not being deleted."""
        selector = f"{names.POOL_LABEL}={self.name}"
        found = self.api.get(f"/api/v1/namespaces/{POOLS}/pods?labelSelector={selector}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def wait_ready(self, replicas: int) -> list[dict[str, Any]]:
        def ready() -> list[dict[str, Any]] | None:
            found = [pod for pod in self.pods() if words.conditions(pod).get("Ready", {}).get("status") == "True"]
            return found if len(found) == replicas else None

        return eventually(f"{replicas} Pods of {self.name} are ready", ready, 90.0)

    def apply(self, claim: str, model: str, **spec: Any) -> None:
        self.api.create(words.CLAIMS.format(POOLS), words.claim_body(claim, self.name, model, **spec))

    def claim(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{words.CLAIMS.format(POOLS)}/{name}")
        return found

    def wait_active(self, claim: str, within_s: float = 90.0) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        def is_active() -> bool:
            seen.update(self.claim(claim))
            return words.phase(seen) == "Active"

        try:
            eventually(f"{claim} is Active", is_active, within_s)
        except AssertionError as error:
            pods = [(pod["metadata"]["name"], pod["status"].get("conditions")) for pod in self.pods()]
            raise AssertionError(f"{error}\n{json.dumps([seen.get('status'), pods], indent=1)}") from None
        return seen

    def remove(self) -> None:
        """Claims first, then the Pods; returns when all are gone."""
        for claim in self.api.get(words.CLAIMS.format(POOLS))["items"]:
            if claim["spec"]["podSelector"]["matchLabels"].get(names.POOL_LABEL) == self.name:
                self.api.delete(f"{words.CLAIMS.format(POOLS)}/{claim['metadata']['name']}")
        eventually(
            f"no claim of {self.name} is left",
            lambda: not [c for c in self.api.get(words.CLAIMS.format(POOLS))["items"] if self.name in str(c["spec"])],
        )
        self.api.delete(f"/apis/apps/v1/namespaces/{POOLS}/deployments/{self.name}?propagationPolicy=Foreground")
        eventually(f"no Pod of {self.name} is left", lambda: not self._all_pods(), 60.0)

    def _all_pods(self) -> list[Any]:
        selector = f"{names.POOL_LABEL}={self.name}"
        found: list[Any] = self.api.get(f"/api/v1/namespaces/{POOLS}/pods?labelSelector={selector}")["items"]
        return found


def deployment(name: str, replicas: int) -> dict[str, Any]:
    """As the chart's example of a warm pool, with stand-ins for engine and GPU in place of an engine's image."""
    labels = {names.POOL_LABEL: name, names.ENABLED_LABEL: "true"}
    container = {
        "name": "runtime",
        "image": images.OPERATOR,
        "imagePullPolicy": "IfNotPresent",
        "args": ["runtime"],
        "env": [{"name": key, "value": value} for key, value in _ENVIRONMENT.items()],
        "ports": [{"name": "http", "containerPort": names.RUNTIME_PORT}],
        "startupProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {names.GPU_RESOURCE: "1"}},
        "securityContext": dict(pods.RESTRICTED),
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in _MOUNTS.items()],
    }
    card_maker = {
        "name": "cards",
        "image": images.OPERATOR,
        "imagePullPolicy": "IfNotPresent",
        "command": [_PYTHON, "-c", _MAKE_CARDS, words.SMALL_CARD, json.dumps(_PROFILES)],
        "securityContext": dict(pods.RESTRICTED),
        "volumeMounts": [{"name": "sim", "mountPath": "/sim"}],
    }
    volumes: list[Mapping[str, Any]] = [
        {"name": volume, "emptyDir": {}} for volume in _MOUNTS if volume != "runtime-token"
    ]
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 20,
        "securityContext": {"fsGroup": rootfs.USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [card_maker],
        "containers": [container],
        "volumes": [*volumes, {"name": "runtime-token", "secret": {"secretName": TOKEN_SECRET, "defaultMode": 0o440}}],
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {names.POOL_LABEL: name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
