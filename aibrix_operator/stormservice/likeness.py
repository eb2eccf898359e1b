"""Whether a running Pod differs from what its role would make now in images only.

The API server fills in defaults, and admission adds what it likes: neither is a difference.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from aibrix_operator.api import orchestration
from aibrix_operator.stormservice import render

_HASH_ENV = "ROLE_TEMPLATE_HASH"
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_OWN_LABELS = frozenset({orchestration.HASH_LABEL, orchestration.ROLE_REVISION, orchestration.ROLE_REVISION_NAME})
_ASSIGNED = ("nodeName", "hostname", "serviceAccount")
"""Fields of a Pod's spec that somebody else than its template fills in."""
_POD_DEFAULTS: Mapping[str, Any] = {
    "schedulerName": "default-scheduler",
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "serviceAccountName": "default",
    "securityContext": {},
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "tolerations": [],
    "volumes": [],
    "initContainers": [],
}
_CONTAINER_DEFAULTS: Mapping[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
    "securityContext": {},
    "volumeMounts": [],
    "env": [],
    "ports": [],
}
_PROBE_DEFAULTS: Mapping[str, Any] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
    "initialDelaySeconds": 0,
}
_VOLUME_MODE = 420
_DEFAULT_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for state in ("not-ready", "unreachable")
)


def difference(rendered: Mapping[str, Any], live: Mapping[str, Any]) -> str:
    """What differs beside images of regular containers, in words; empty when nothing does."""
    for kind in ("labels", "annotations"):
        wanted = rendered["metadata"].get(kind) or {}
        found = live["metadata"].get(kind) or {}
        for key, value in wanted.items():
            if key not in _OWN_LABELS and found.get(key) != value:
                return f"{kind[:-1]} {key} differs"
    ours, theirs = _plain(rendered["spec"]), _plain(live["spec"])
    for field in sorted({*ours, *theirs}):
        if ours.get(field) != theirs.get(field):
            return f"spec.{field} differs"
    return ""


def changed_images(rendered: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, str]:
    """Container → the image that it is to have and has not."""
    now = {c["name"]: c.get("image") for c in live["spec"].get("containers", ())}
    wanted = {c["name"]: c.get("image") for c in rendered["spec"].get("containers", ())}
    return {name: image for name, image in wanted.items() if image is not None and now.get(name) != image}


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    """``spec`` without defaults, and with regular containers' images left out."""
    plain = copy.deepcopy(dict(spec))
    for field in _ASSIGNED:
        plain.pop(field, None)
    token = {v["name"] for v in plain.get("volumes") or () if _is_token(v)}
    plain["volumes"] = [_volume(v) for v in plain.get("volumes") or () if v["name"] not in token]
    plain["tolerations"] = [t for t in plain.get("tolerations") or () if t not in _DEFAULT_TOLERATIONS]
    plain["containers"] = {
        c["name"]: {k: v for k, v in _container(c, token).items() if k != "image"}
        for c in plain.get("containers") or ()
    }
    plain["initContainers"] = [_container(c, token) for c in plain.get("initContainers") or ()]
    _drop_node_preferences(plain)
    return {k: v for k, v in plain.items() if v is not None and (k not in _POD_DEFAULTS or _POD_DEFAULTS[k] != v)}


def _container(container: Mapping[str, Any], token: set[str]) -> dict[str, Any]:
    plain = dict(container)
    image = str(plain.get("image", ""))
    plain["volumeMounts"] = [
        m for m in plain.get("volumeMounts") or () if m["name"] not in token and m.get("mountPath") != _TOKEN_PATH
    ]
    plain["env"] = [_env(e) for e in plain.get("env") or () if e["name"] != _HASH_ENV]
    plain["ports"] = [{k: v for k, v in p.items() if (k, v) != ("protocol", "TCP")} for p in plain.get("ports") or ()]
    plain["resources"] = _resources(plain.get("resources") or {})
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if plain.get(probe):
            plain[probe] = _probe(plain[probe])
    if plain.get("imagePullPolicy") == _pull_policy(image):
        del plain["imagePullPolicy"]
    return {
        k: v
        for k, v in plain.items()
        if v is not None and (k not in _CONTAINER_DEFAULTS or _CONTAINER_DEFAULTS[k] != v)
    }


def _pull_policy(image: str) -> str:
    """What the API server makes of an image without a policy."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"


def _probe(probe: Mapping[str, Any]) -> dict[str, Any]:
    plain = {k: v for k, v in probe.items() if k not in _PROBE_DEFAULTS or _PROBE_DEFAULTS[k] != v}
    if "httpGet" in plain:
        plain["httpGet"] = {k: v for k, v in plain["httpGet"].items() if (k, v) != ("scheme", "HTTP")}
    return plain


def _env(entry: Mapping[str, Any]) -> dict[str, Any]:
    plain = {k: v for k, v in entry.items() if (k, v) != ("value", "")}
    source = plain.get("valueFrom") or {}
    if source.get("fieldRef", {}).get("apiVersion") == "v1":
        plain["valueFrom"] = {"fieldRef": {k: v for k, v in source["fieldRef"].items() if k != "apiVersion"}}
    return plain


def _resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """A limit is also a request where none is given."""
    limits = resources.get("limits") or {}
    requests = {**limits, **(resources.get("requests") or {})}
    rest = {k: v for k, v in resources.items() if k not in ("limits", "requests")}
    return rest | ({"limits": limits} if limits else {}) | ({"requests": requests} if requests else {})


def _is_token(volume: Mapping[str, Any]) -> bool:
    return str(volume.get("name", "")).startswith("kube-api-access-") and "projected" in volume


def _volume(volume: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: {a: b for a, b in v.items() if (a, b) != ("defaultMode", _VOLUME_MODE)} if isinstance(v, Mapping) else v
        for k, v in volume.items()
    }


def _drop_node_preferences(spec: dict[str, Any]) -> None:
    """A preference for nodes that we gave a Pod is no part of its template."""
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    if field not in node:
        return
    node[field] = [term for term in node[field] if not _is_ours(term)]
    if not node[field]:
        del node[field]
    if not node:
        del affinity["nodeAffinity"]
    if not affinity:
        del spec["affinity"]


def _is_ours(term: Mapping[str, Any]) -> bool:
    expressions = (term.get("preference") or {}).get("matchExpressions") or [{}]
    return bool(term == render.node_preference(expressions[0].get("values") or ()))
