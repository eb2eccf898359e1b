"""The Job that warms one node up. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.api.modelwarmup import (
    MODELWARMUP,
    NAME_ANNOTATION,
    NODE_ANNOTATION,
    REVISION_LABEL,
    WARMUP_LABEL,
    ModelWarmupSpec,
)
from aibrix_operator.api.warmup_content import Weights
from aibrix_operator.cluster.resource import Object
from aibrix_operator.controller.steps import Ref
from aibrix_operator.modelwarmup.snapshot import Warmup

MAX_NAME = 63
GIVE_UP_STATUS = 42
"""What ``aibrix-operator fetch`` ends with where another try cannot help: the Job fails at once then."""
CACHE = "/weights"
CREDENTIALS = "/credentials"
REPORT = "/dev/termination-log"
_WEIGHTS = "weights"


def job_name(warmup: Ref, node: str, revision: str) -> str:
    """Another one for another warmup, also under the same name, node or revision."""
    suffix = f"-{_digest(warmup.uid)}-{_digest(node)}-{revision}"
    name = warmup.name
    if len(name) + len(suffix) > MAX_NAME:
        name = name[: MAX_NAME - len(suffix)].rstrip("-.")
    return name + suffix


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def job_of(warmup: Warmup, node: str, revision: str) -> Object:
    """The whole Job. It has no time to live: that is set once the warmup is over, so that nothing is done twice."""
    spec = warmup.spec
    assert spec is not None, "a warmup that cannot be read has no Jobs"
    policies = spec.effective_policies
    body: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(warmup.ref, node, revision),
            "namespace": warmup.ref.namespace,
            "labels": {WARMUP_LABEL: warmup.ref.uid, REVISION_LABEL: revision},
            "annotations": {NODE_ANNOTATION: node, NAME_ANNOTATION: warmup.ref.name},
            "ownerReferences": [
                {
                    "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
                    "kind": MODELWARMUP.kind,
                    "name": warmup.ref.name,
                    "uid": warmup.ref.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "backoffLimit": policies.retry_limit,
            "activeDeadlineSeconds": policies.job_timeout_seconds,
            "template": {"spec": _pod_spec(spec, dict(warmup.custom), node)},
        },
    }
    if spec.weights is not None:
        # By this label the operator finds the Pods whose containers tell how much they fetched.
        body["spec"]["template"]["metadata"] = {"labels": {WARMUP_LABEL: warmup.ref.uid}}
        on_exit = {"operator": "In", "values": [GIVE_UP_STATUS]}
        body["spec"]["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": on_exit}]}
    return body


def _pod_spec(spec: ModelWarmupSpec, custom: dict[str, Any], node: str) -> Object:
    # Not nodeName: the scheduler still looks at resources and taints.
    pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pinned]}}
        },
        "containers": [
            *_image_containers(spec),
            *(_weight_containers(spec.weights) if spec.weights is not None else ()),
            *custom.get("containers", ()),
        ],
    }
    if custom.get("initContainers"):
        pod["initContainers"] = custom["initContainers"]
    volumes = [*custom.get("volumes", ()), *(_weight_volumes(spec.weights) if spec.weights is not None else ())]
    if volumes:
        pod["volumes"] = volumes
    secrets = _pull_secrets(spec)
    if secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in secrets]
    return pod


def _image_containers(spec: ModelWarmupSpec) -> Iterable[Object]:
    for i, image in enumerate(spec.images):
        container: Object = {
            "name": f"image-{i}",
            "image": image.image,
            "command": list(image.command),
            "imagePullPolicy": image.pull_policy,
            "securityContext": {"allowPrivilegeEscalation": False},
        }
        if image.args:
            container["args"] = list(image.args)
        yield container


def _weight_containers(weights: Weights) -> Iterable[Object]:
    for i, artifact in enumerate(weights.artifacts):
        mounts = [{"name": _WEIGHTS, "mountPath": CACHE}]
        args = ["fetch", artifact.url, f"{CACHE}/{artifact.path}", "--report", REPORT]
        if weights.credentials_secret is not None:
            mounts.append({"name": f"{_WEIGHTS}-credentials", "mountPath": CREDENTIALS})
            args += ["--credentials", CREDENTIALS]
        if artifact.url.startswith("/"):
            mounts.append({"name": f"{_WEIGHTS}-source-{i}", "mountPath": artifact.url})
        for mount in mounts[1:]:
            mount["readOnly"] = True  # type: ignore[assignment]  # the API's field is a boolean among texts
        yield {
            "name": f"{_WEIGHTS}-{i}",
            "image": weights.image,
            "args": args,  # of the image's entry point, wherever its package lies
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": mounts,
            # A folder of the node belongs to root. Without capabilities root is an owner like any other.
            "securityContext": {
                "runAsUser": 0,
                "runAsNonRoot": False,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }


def _weight_volumes(weights: Weights) -> Iterable[Object]:
    yield {"name": _WEIGHTS, "hostPath": {"path": weights.host_path, "type": "DirectoryOrCreate"}}
    if weights.credentials_secret is not None:
        yield {"name": f"{_WEIGHTS}-credentials", "secret": {"secretName": weights.credentials_secret.name}}
    for i, artifact in enumerate(weights.artifacts):
        if artifact.url.startswith("/"):
            yield {"name": f"{_WEIGHTS}-source-{i}", "hostPath": {"path": artifact.url}}


def _pull_secrets(spec: ModelWarmupSpec) -> list[str]:
    """Each once, in the order in which they are named."""
    of_images = spec.image_preload.pull_secrets if spec.image_preload is not None else ()
    of_custom = spec.custom.image_pull_secrets if spec.custom is not None else ()
    return list(dict.fromkeys(secret.name for secret in (*of_images, *of_custom)))
