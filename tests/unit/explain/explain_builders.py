"""Fleets for what explains them: built by hand, or looked up in a simulated cluster past its controller."""

from __future__ import annotations

import dataclasses

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.modelclaim.parse import OLDEST, parse_claim, parse_pod, slim_pod
from aibrix_operator.modelclaim.snapshot import Fleet, Pod, Reading
from aibrix_operator.runtime_api import wire
from aibrix_operator.sim.world import NAMESPACE

GIB = 1 << 30


def fleet_of(cluster, *, silent=()):
    """What a look from outside sees of a simulated cluster; runtimes of Pods named in ``silent`` do not answer."""
    claims, pods = [], {}
    for (plural, _, name), obj in cluster.store.objects.items():
        if plural == MODEL_CLAIMS.plural:
            claims.append(parse_claim(obj))
        elif plural == PODS.plural:
            pod = parse_pod(slim_pod(dict(obj)))
            runtime = cluster.runtimes.by_ip.get(pod.ip)
            is_silent = runtime is None or name in silent or "*" in silent
            reading = Reading(1, error="gone") if is_silent else Reading(1, runtime.snapshot())
            pods[name] = dataclasses.replace(pod, reading=reading)
    return Fleet(NAMESPACE, tuple(sorted(claims, key=lambda c: c.age_key)), pods)


def claim_in(fleet, name):
    """The claim of that name."""
    return next(c for c in fleet.claims if c.name == name)


def manifest(name, footprint="30Gi", floor="10Gi", pool="demo", namespace=None, **spec):
    """A ModelClaim as a user writes it."""
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {
        "apiVersion": "model.aibrix.ai/v1alpha1",
        "kind": "ModelClaim",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": {names.POOL_LABEL: pool}},
            "artifactURL": f"huggingface://org/{name}",
            "perGPU": {"maximumFootprint": footprint, "kvFloor": floor},
            **spec,
        },
    }


@dataclasses.dataclass(frozen=True)
class On:
    """A claim that is served on a Pod."""

    name: str
    footprint_bytes: int
    floor_bytes: int
    mapped_bytes: int = 0
    requests: int = 0
    model: str = ""
    is_leaving: bool = False


def pod_of(name, usable_bytes, *on_it):
    """A Pod with one GPU, read a moment ago, on which these claims are served."""
    models = tuple(
        wire.ModelState(
            model_name=on.model or on.name,
            claim_ref=wire.ClaimRef(namespace="ns", name=on.name, uid=on.name),
            phase=wire.EnginePhase.ACTIVE,
            ready=True,
            kv_used_bytes=on.mapped_bytes,
            kv_capacity_bytes=max(on.mapped_bytes, on.floor_bytes),
            request_metrics_observed=True,
            requests_running=on.requests,
        )
        for on in on_it
    )
    gpu = wire.Accelerator(id=f"GPU-{name}", hbm_total_bytes=usable_bytes, hbm_usable_bytes=usable_bytes)
    snapshot = wire.Snapshot(observed_at=OLDEST, accelerators=(gpu,), models=models)
    labels = {names.POOL_LABEL: "demo", names.ENABLED_LABEL: "true"}
    return Pod("ns", name, name, "10.0.0.1", labels, True, True, 1, reading=Reading(1, snapshot))


def small_fleet(waiting, *pods_and_claims):
    """A fleet of ``(usable bytes, claims on it)`` a Pod (``pod-0``, ``pod-1``, …), and one claim that waits."""
    pods, claims = {}, [_claim(waiting, None)]
    for number, (usable_bytes, on_it) in enumerate(pods_and_claims):
        name = f"pod-{number}"
        pods[name] = pod_of(name, usable_bytes, *on_it)
        claims += [_claim(on, name) for on in on_it]
    return Fleet("ns", tuple(claims), pods)


def _claim(on, pod):
    body = manifest(on.name, str(on.footprint_bytes), str(on.floor_bytes), namespace="ns")
    body["metadata"] |= {"uid": on.name}
    if on.model:
        body["spec"]["modelName"] = on.model
    if on.is_leaving:
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if pod is not None:
        body["status"] = {"instances": [{"pod": pod, "phase": "Active", "kvLimitBytes": on.floor_bytes}]}
    return parse_claim(body)
