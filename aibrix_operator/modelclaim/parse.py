"""From the API server's JSON to the frozen values of a snapshot. Behind this nobody reads ``body["spec"]``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ModelClaimSpec, ModelClaimStatus, PerGPU
from aibrix_operator.api.parallelism import ParallelismError, parse_parallelism
from aibrix_operator.api.pool_policy import PolicyError, parse_policy
from aibrix_operator.api.quantity import PER_GPU_MISSING, QuantityError, figure_bytes
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.snapshot import Claim, Pod, Pool

OLDEST = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadableClaim(ValueError):
    """An object that the CRD's schema cannot have let through, such as one stored before the schema."""


def parse_claim(body: Mapping[str, Any]) -> Claim:
    """A claim from the API server's object. Raises UnreadableClaim, which names what was wrong.

    A status that does not fit counts as empty: what it promised is gone with it, and the card's engines show up as
    strangers, so that nothing is promised twice.
    """
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        raise UnreadableClaim("metadata.name is missing")
    try:
        spec = ModelClaimSpec.model_validate(body.get("spec"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in ("spec", *first["loc"]))
        raise UnreadableClaim(f"{field}: {first['msg']}") from None
    seat, seat_error = parse_seat(spec.per_gpu)
    parallelism, engine_error = _parse_engine(spec)
    return Claim(
        namespace=str(metadata.get("namespace") or ""),
        name=metadata["name"],
        uid=str(metadata.get("uid") or ""),
        generation=metadata.get("generation") or 0,
        resource_version=str(metadata.get("resourceVersion") or ""),
        created_at=parse_time(metadata.get("creationTimestamp")) or OLDEST,
        deleting_since=parse_time(metadata.get("deletionTimestamp")),
        has_finalizer=names.CLAIM_FINALIZER in (metadata.get("finalizers") or ()),
        spec=spec,
        status=_parse_status(body.get("status")),
        seat=seat,
        seat_error=seat_error,
        parallelism=parallelism,
        engine_error=engine_error,
    )


def parse_seat(per_gpu: PerGPU | None) -> tuple[Seat | None, str]:
    """The seat that ``perGPU`` declares, or None and what is wrong with it."""
    if per_gpu is None:
        return None, PER_GPU_MISSING
    try:
        return Seat(
            figure_bytes("maximumFootprint", per_gpu.maximum_footprint),
            figure_bytes("kvFloor", per_gpu.kv_floor),
        ), ""
    except QuantityError as error:
        return None, str(error)


def _parse_engine(spec: ModelClaimSpec) -> tuple[int, str]:
    if spec.engine != "vllm":
        return 1, ""
    args = (spec.engine_config.args if spec.engine_config else None) or {}
    try:
        return parse_parallelism(args), ""
    except ParallelismError as error:
        return 1, str(error)


def _parse_status(status: Any) -> ModelClaimStatus:
    try:
        parsed = ModelClaimStatus.model_validate(status or {})
    except ValidationError:
        return ModelClaimStatus()
    by_pod = {i.pod: i for i in reversed(parsed.instances)}
    if len(by_pod) == len(parsed.instances):
        return parsed
    # Another hand wrote it: no claim of ours has two instances on one Pod, and no card is charged twice for one.
    return parsed.model_copy(update={"instances": tuple(i for i in parsed.instances if by_pod[i.pod] is i)})


def parse_time(text: Any) -> datetime | None:
    """A Kubernetes time (RFC 3339, whole seconds, Z); None when absent or no time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def slim_pod(body: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a Pod, about a tenth of it; of annotations only routes and wake requests. Idempotent."""
    metadata, status = body["metadata"], body.get("status") or {}
    annotations = metadata.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if k.startswith((names.ROUTE_PREFIX, names.WAKE_PREFIX))}
    labels = metadata.get("labels") or {}
    slim = _identity(metadata)
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if key in metadata:
            slim[key] = metadata[key]
    owner = body["owner"] if "owner" in body else controller_uid(metadata, "ReplicaSet")
    slim |= {"labels": labels, "annotations": kept}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    return {
        "metadata": slim,
        "owner": owner,
        "gpus": body["gpus"] if "gpus" in body else count_gpus(body.get("spec") or {}),
        "status": {
            "phase": status.get("phase"),
            "podIP": status.get("podIP"),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def count_gpus(spec: Mapping[str, Any]) -> int:
    """Sum over the containers of nvidia.com/gpu limits, else requests; what is no whole number counts 0."""
    total = 0
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        figure = (resources.get("limits") or {}).get(names.GPU_RESOURCE)
        if figure is None:
            figure = (resources.get("requests") or {}).get(names.GPU_RESOURCE)
        text = str(figure)
        total += int(text) if text.isascii() and text.isdecimal() else 0
    return total


def parse_pod(slim: Mapping[str, Any]) -> Pod:
    """A Pod of the snapshot, without a reading yet."""
    metadata, status = slim["metadata"], slim["status"]
    ip = status.get("podIP") or ""
    is_deleting = "deletionTimestamp" in metadata
    return Pod(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        ip=ip,
        labels=metadata["labels"],
        is_running=status.get("phase") == "Running" and bool(ip) and not is_deleting,
        is_ready=any(c["status"] == "True" for c in status["conditions"]),
        gpu_count=slim["gpus"],
        annotations=metadata["annotations"],
        owner_uid=slim["owner"],
    )


def controller_uid(metadata: Mapping[str, Any], kind: str) -> str:
    """UID of the controller owner of that kind; empty without one."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == kind:
            return str(owner.get("uid", ""))
    return ""


def slim_replica_set(body: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a ReplicaSet: which Deployment controls it. Idempotent."""
    metadata = body["metadata"]
    owner = body["owner"] if "owner" in body else controller_uid(metadata, "Deployment")
    return {"metadata": _identity(metadata), "owner": owner}


def slim_deployment(body: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a Deployment: its pool policy. Idempotent."""
    metadata = body["metadata"]
    policy = (metadata.get("annotations") or {}).get(names.POOL_POLICY_ANNOTATION)
    kept = {} if policy is None else {names.POOL_POLICY_ANNOTATION: policy}
    return {"metadata": {**_identity(metadata), "annotations": kept}}


def _identity(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {k: metadata[k] for k in ("name", "namespace", "uid", "resourceVersion") if k in metadata}


def parse_pool(slim: Mapping[str, Any]) -> Pool:
    """A Deployment's pool with its policy, or with what is wrong with it."""
    metadata = slim["metadata"]
    identity = (metadata.get("namespace", ""), metadata["name"], metadata["uid"])
    text = metadata["annotations"].get(names.POOL_POLICY_ANNOTATION)
    if text is None:
        return Pool(*identity)
    try:
        return Pool(*identity, annotation=text, policy=parse_policy(text))
    except PolicyError as error:
        return Pool(*identity, annotation=text, error_class=error.error_class, error=str(error))
