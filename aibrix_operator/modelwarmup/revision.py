"""What nodes are to have, in twelve digits: equal for warmups that bring the same. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from aibrix_operator.api import quantity
from aibrix_operator.api.modelwarmup import ModelWarmupSpec

DIGITS = 12
_QUANTITIES = ("limits", "requests", "capacity")


def revision_of(spec: ModelWarmupSpec, custom: Mapping[str, Any]) -> str:
    """The order of images does not matter, that within ``custom`` does. Targets and policies are no part of it."""
    parts = [
        "\x01".join((image.image, "\0".join(image.command), "\0".join(image.args), image.pull_policy))
        for image in spec.images
    ]
    if spec.image_preload is not None:
        parts += [f"secret={secret.name}" for secret in spec.image_preload.pull_secrets]
    if custom:
        parts.append("custom=" + _canonical(_with_plain_quantities(custom)))
    if spec.weights is not None:
        parts.append("weights=" + _canonical(spec.weights.model_dump(mode="json", by_alias=True)))
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:DIGITS]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _with_plain_quantities(value: Any, *, is_quantity: bool = False) -> Any:
    """Quantities of containers and volumes as exact numbers, so that 1Gi and 1024Mi are the same."""
    if isinstance(value, Mapping):
        return {
            key: {k: _with_plain_quantities(v, is_quantity=True) for k, v in inner.items()}
            if key in _QUANTITIES and isinstance(inner, Mapping)
            else _with_plain_quantities(inner, is_quantity=key == "sizeLimit")
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_plain_quantities(inner) for inner in value]
    return _plain(value) if is_quantity and isinstance(value, str | int) else value


def _plain(value: str | int) -> str:
    try:
        return str(quantity.parse_quantity(str(value)))
    except ValueError:  # the API server refuses the Job, and says why
        return str(value)
