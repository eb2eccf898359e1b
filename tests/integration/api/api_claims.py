"""ModelClaims as a user sends them, and what the API server says to each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from kubernetes.aio import client

from aibrix_operator.api import names

ACCEPTED = ""
"""The verdict on an object that nothing is wrong with."""


def spec(**changes: Any) -> dict[str, Any]:
    """A complete spec with ``changes``; a field that is given as None is left out."""
    whole = {
        "modelName": "qwen3-0.6b",
        "podSelector": {"matchLabels": {names.POOL_LABEL: "b300-pool-a"}},
        "artifactURL": "huggingface://Qwen/Qwen3-0.6B",
        "engine": "vllm",
        "replicas": 1,
        "engineConfig": {"args": {"--max-model-len": "2048"}},
        "perGPU": {"maximumFootprint": "6Gi", "kvFloor": "1Gi"},
    }
    return {field: value for field, value in (whole | changes).items() if value is not None}


class Claims:
    """The ModelClaims of one namespace."""

    def __init__(self, api: client.ApiClient, namespace: str):
        self._objects = client.CustomObjectsApi(api)
        self._place = (names.MODEL_GROUP, names.MODEL_VERSION, namespace, "modelclaims")
        self._numbers = itertools.count(1)

    async def create(self, spec: Mapping[str, Any], name: str = "", *, dry_run: bool = False) -> dict[str, Any]:
        """What the API server made of it. ApiException when it refuses."""
        body = {
            "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
            "kind": "ModelClaim",
            "metadata": {"name": name or f"claim-{next(self._numbers)}"},
            "spec": spec,
        }
        more = {"dry_run": "All"} if dry_run else {}
        made: dict[str, Any] = await self._objects.create_namespaced_custom_object(*self._place, body, **more)
        return made

    async def patch(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch of the spec; None takes a field away. ApiException when it is refused."""
        changed: dict[str, Any] = await self._objects.patch_namespaced_custom_object(
            *self._place, name, {"spec": spec}, _content_type="application/merge-patch+json"
        )
        return changed

    async def verdict_on(self, spec: Mapping[str, Any], name: str = "") -> str:
        """The refusal of a new claim, or ACCEPTED. Nothing is stored."""
        return await _verdict(self.create(spec, name, dry_run=True))

    async def verdict_on_patch(self, name: str, spec: Mapping[str, Any]) -> str:
        """The refusal of a change, or ACCEPTED."""
        return await _verdict(self.patch(name, spec))


async def _verdict(call: Any) -> str:
    try:
        await call
    except client.ApiException as refused:
        if refused.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise  # no rule said no, but the path or the JSON is wrong
        message: str = json.loads(refused.body)["message"]
        return message
    return ACCEPTED
