"""What tests of ModelAdapters work with: Pods with addresses of their own, an engine behind each, and users' calls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import (
    ENDPOINT_SLICES,
    HTTP_ROUTES,
    MODEL_ADAPTERS,
    PODS,
    REFERENCE_GRANTS,
    SERVICES,
    Object,
    Resource,
)
from aibrix_operator.sandbox import rights

OPTIONS = ("httpRoutes", "referenceGrants")
"""Choices in the chart's values that the operator has its rights by."""
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
NAMESPACES = Resource("", "v1", "namespaces")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
DEADLINE_S = 30.0
POLL_S = 0.05


class Engine:
    """One Pod's engine, and the sidecar before it."""

    def __init__(self) -> None:
        self.loaded: dict[str, Any] = {}
        self.calls: list[tuple[str, str, Any, str | None]] = []
        """(method, path, body, Authorization)"""
        self.refuses = ""
        """Loads are answered 500 with these words."""
        self.hangs = False
        self.asked: list[str] = []
        """Models that clients asked it for."""
        self.strays: list[str] = []
        """Those of them that it does not have."""

    def posts(self, ending: str = "load") -> list[Any]:
        return [body for method, path, body, _ in self.calls if method == "POST" and f"/{ending}" in path]

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.calls.append((request.method, request.path, body, request.headers.get("Authorization")))
        if self.hangs:
            await asyncio.sleep(60)
        if request.path == "/v1/models":
            models = [{"id": "base", "parent": None}, *({"id": name, "parent": "base"} for name in self.loaded)]
            return web.json_response({"object": "list", "data": models})
        if request.path == "/v1/chat/completions":
            return self._chat(body["model"])
        name = body["lora_name"]
        if "unload" in request.path:
            return web.Response(status=200 if self.loaded.pop(name, None) else 404)
        if self.refuses:
            return web.json_response({"error": self.refuses}, status=500)
        self.loaded[name] = body
        return web.json_response({"status": "success"})

    def _chat(self, model: str) -> web.Response:
        self.asked.append(model)
        if model != "base" and model not in self.loaded:
            self.strays.append(model)
            return web.json_response({"error": {"message": f"The model `{model}` does not exist."}}, status=404)
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "model": model, "choices": [choice]})


class Engines:
    """All engines, told apart by the address that was called."""

    def __init__(self) -> None:
        self.by_ip: dict[str, Engine] = {}
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer))
        await self._runner.setup()
        for port in (8000, 8080, 9000):
            await web.TCPSite(self._runner, "0.0.0.0", port, reuse_address=True).start()

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        engine = self.by_ip.get(request.transport.get_extra_info("sockname")[0])
        if engine is None:
            request.transport.close()
            return web.Response(status=404)
        return await engine.answer(request)  # type: ignore[arg-type]  # it has what is asked of it


class Stage:
    """One namespace."""

    _numbers = itertools.count(1)

    def __init__(self, cluster: Cluster, engines: Engines) -> None:
        self.cluster = cluster
        self.engines = engines
        self.namespace = f"lora-{next(self._numbers)}"

    async def open(self) -> None:
        await self.cluster.create(NAMESPACES, None, {"metadata": {"name": self.namespace}})

    async def close(self) -> None:
        for adapter in (await self.cluster.list_all(MODEL_ADAPTERS, self.namespace))[0]:
            with contextlib.suppress(errors.NotFound):
                await self.cluster.delete(MODEL_ADAPTERS, self.namespace, adapter["metadata"]["name"])
        await self.until(self.none_left, "all adapters are gone")

    async def none_left(self) -> bool:
        return not (await self.cluster.list_all(MODEL_ADAPTERS, self.namespace))[0]

    async def let_read_secret(self, name: str) -> None:
        """Give the operator the right that the chart's ``artifactSecrets`` gives."""
        metadata = {"name": "artifact-secrets"}
        rules = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"]}]
        await self.cluster.create(ROLES, self.namespace, {"metadata": metadata, "rules": rules})
        reference = {"apiGroup": ROLES.group, "kind": "Role", "name": metadata["name"]}
        subject = {"apiGroup": ROLES.group, "kind": "User", "name": rights.account("operator")}
        binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
        await self.cluster.create(ROLE_BINDINGS, self.namespace, binding)
        asked = {"resource": "secrets", "verb": "get", "namespace": self.namespace, "name": name}
        question = {"spec": {"user": rights.account("operator"), "resourceAttributes": asked}}

        async def is_known() -> bool:
            return bool((await self.cluster.create(REVIEWS, None, question))["status"]["allowed"])

        await self.until(is_known, "the API server lets the operator read the Secret")

    # --- Pods

    async def pod(
        self, name: str, *, labels: Object | None = None, sidecar: bool = False, ready: bool = True
    ) -> Engine:
        """A Pod that has been ready for a minute, with its engine."""
        number = next(self._numbers)
        ip = f"10.77.{number // 250}.{number % 250 + 1}"
        names = ["engine", *(["aibrix-runtime"] if sidecar else [])]
        body = {
            "metadata": {"name": name, "labels": {"app": "base", **(labels or {})}},
            "spec": {"containers": [{"name": each, "image": "none"} for each in names], "schedulerName": "none"},
        }
        self.engines.by_ip[ip] = engine = Engine()
        await self.cluster.create(PODS, self.namespace, body)
        await self.say(name, ip=ip, ready=ready)
        return engine

    async def say(self, name: str, *, ready: bool, ip: str = "") -> None:
        """The kubelet's word."""
        since = rfc3339(datetime.now(UTC) - timedelta(minutes=1))
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
        status: Object = {"phase": "Running", "conditions": [condition]}
        if ip:
            status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
        while True:
            current = await self.cluster.get(PODS, self.namespace, name)
            version = current["metadata"]["resourceVersion"]
            with contextlib.suppress(errors.Conflict):  # a controller wrote between
                await self.cluster.patch_status(PODS, self.namespace, name, status, version)
                return

    async def remove(self, name: str) -> None:
        body = {"gracePeriodSeconds": 0}
        await self.cluster._call("DELETE", PODS, self.namespace, name, body=body)

    # --- the administrator

    async def install_gateway_api(self) -> None:
        """Its two definitions as far as we use them, and the namespace of AIBrix's Gateway."""
        await self.cluster.create(NAMESPACES, None, {"metadata": {"name": "aibrix-system"}})
        for kind, resource in (("HTTPRoute", HTTP_ROUTES), ("ReferenceGrant", REFERENCE_GRANTS)):
            await self.cluster.create(CRDS, None, _definition(kind, resource))

            async def is_served(resource: Resource = resource) -> bool:
                try:
                    await self.cluster.list_all(resource)
                except errors.ClusterError:
                    return False
                return True

            await self.until(is_served, f"{kind}s are served")

    # --- adapters

    async def adapter(self, name: str = "sql", *, labels: Object | None = None, **spec: Any) -> Object:
        whole = {"podSelector": {"matchLabels": {"app": "base"}}, "artifactURL": "huggingface://org/sql"} | spec
        body = {
            "apiVersion": "model.aibrix.ai/v1alpha1",
            "kind": "ModelAdapter",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": whole,
        }
        return await self.cluster.create(MODEL_ADAPTERS, self.namespace, body)

    async def read(self, name: str = "sql") -> Object:
        return await self.cluster.get(MODEL_ADAPTERS, self.namespace, name)

    async def status(self, name: str = "sql") -> Object:
        found: Object = (await self.read(name)).get("status") or {}
        return found

    async def condition(self, type_: str, name: str = "sql") -> tuple[str, str, str]:
        """(status, reason, message)."""
        for each in (await self.status(name)).get("conditions") or ():
            if each["type"] == type_:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    async def is_on(self, *pods: str, name: str = "sql") -> bool:
        status = await self.status(name)
        return status.get("phase") == "Running" and set(status.get("instances") or ()) == set(pods)

    async def exists(self, resource: Resource, name: str, namespace: str = "") -> bool:
        try:
            await self.cluster.get(resource, namespace or self.namespace, name)
        except errors.NotFound:
            return False
        return True

    async def slice_addresses(self, name: str = "sql") -> set[str]:
        found = await self.cluster.get(ENDPOINT_SLICES, self.namespace, name)
        return {address for each in found.get("endpoints") or () for address in each["addresses"]}

    async def has_service(self, name: str = "sql") -> bool:
        return await self.exists(SERVICES, name)

    async def delete(self, name: str = "sql") -> None:
        await self.cluster.delete(MODEL_ADAPTERS, self.namespace, name)

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        """Poll until it holds."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + DEADLINE_S
        while not await holds():
            if loop.time() > deadline_s:
                listed = (await self.cluster.list_all(MODEL_ADAPTERS, self.namespace))[0]
                raise AssertionError(f"not within {DEADLINE_S} s: {what}; {json.dumps(listed)[:3000]}")
            await asyncio.sleep(POLL_S)

    async def until_on(self, *pods: str, name: str = "sql") -> None:
        await self.until(lambda: self.is_on(*pods, name=name), f"{name} runs on {pods}")


def _definition(kind: str, resource: Resource) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    approval = {"api-approved.kubernetes.io": "unapproved, a stand-in of a test"}
    names = {"kind": kind, "plural": resource.plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}", "annotations": approval},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
