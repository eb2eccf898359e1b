"""What takes longer than a pass: calls to engines and about the HTTPRoute. The next pass is told how each ended."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import (
    DEPLOYMENTS,
    HTTP_ROUTES,
    REFERENCE_GRANTS,
    SECRETS,
    Key,
    Object,
    Resource,
)
from aibrix_operator.controller.hub import Hub
from aibrix_operator.modeladapter import routes
from aibrix_operator.modeladapter.engines import Access, Answer, Engines, Source
from aibrix_operator.modeladapter.snapshot import Adapter, Target, Verdict, Way

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineCall:
    """A load or an unload."""

    key: Key
    loads: bool
    target: Target
    artifact_url: str
    access: Access
    secret: str = ""
    """Name of the Secret with the credentials; empty: none is needed."""
    additional_config: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """How a call about the route ended."""

    error: str = ""
    """Empty: it is done, or there is nothing to do."""
    is_forbidden: bool = False


@dataclass(frozen=True, slots=True)
class RouteCall:
    """Make the route, or remove it."""

    makes: bool
    adapter: Adapter
    is_grant_needed: bool
    """Another adapter of the namespace has a route too."""


class Calls:
    """Carries them out."""

    def __init__(self, engines: Engines, hub: Hub) -> None:
        self._engines = engines
        self._hub = hub

    async def engine(self, call: EngineCall) -> Answer:
        """How it ended."""
        if not call.loads:
            return await self._engines.unload(call.target, call.access, call.key[1])
        credentials: Mapping[str, str] = {}
        if call.secret and call.target.way is Way.SIDECAR:
            found = await self._credentials(call.key[0], call.secret)
            if isinstance(found, Answer):
                return found
            credentials = found
        source = Source(call.artifact_url, credentials, call.additional_config)
        return await self._engines.load(call.target, call.access, call.key[1], source)

    async def _credentials(self, namespace: str, name: str) -> Mapping[str, str] | Answer:
        try:
            secret = await self._hub.reader.get(SECRETS, namespace, name)
        except errors.NotFound:
            return Answer(Verdict.REFUSED, f"Secret {namespace}/{name} with the credentials is not there")
        except errors.ClusterError as error:
            return Answer(Verdict.NOT_SENT, f"Secret {namespace}/{name} cannot be read: {error}")
        try:
            return {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
        except (binascii.Error, UnicodeDecodeError):
            return Answer(Verdict.REFUSED, f"Secret {namespace}/{name} holds a value that is no text")

    # --- the route

    async def route(self, call: RouteCall) -> RouteAnswer:
        """How it ended."""
        try:
            await (self._make(call.adapter) if call.makes else self._remove(call))
        except errors.Denied as error:
            if call.makes:
                return RouteAnswer(str(error), is_forbidden=True)
            # What could not be made cannot be left behind; a deletion must not hang on it.
            log.warning("%s; the route of %s is left", error, call.adapter.name)
        except (errors.ClusterError, _Taken) as error:
            return RouteAnswer(str(error))
        return RouteAnswer()

    async def _make(self, adapter: Adapter) -> None:
        body = routes.http_route(adapter)
        name = body["metadata"]["name"]
        found = await self._get(HTTP_ROUTES, routes.GATEWAY_NAMESPACE, name)
        if found is None:
            if not await self._create(HTTP_ROUTES, routes.GATEWAY_NAMESPACE, body):
                return  # the cluster has no Gateway API
        elif not routes.leads_to(found, adapter):
            raise _Taken(f"HTTPRoute {name} leads to another Service")
        if adapter.namespace != routes.GATEWAY_NAMESPACE:
            grant = routes.grant_name(adapter.namespace)
            if await self._get(REFERENCE_GRANTS, adapter.namespace, grant) is None:
                await self._create(REFERENCE_GRANTS, adapter.namespace, routes.reference_grant(adapter.namespace))

    async def _remove(self, call: RouteCall) -> None:
        adapter = call.adapter
        name = routes.route_name(routes.served_name(adapter))
        found = await self._get(HTTP_ROUTES, routes.GATEWAY_NAMESPACE, name)
        if found is not None and routes.leads_to(found, adapter):
            await self._delete(HTTP_ROUTES, routes.GATEWAY_NAMESPACE, found)
        if call.is_grant_needed or adapter.namespace == routes.GATEWAY_NAMESPACE:
            return
        grant = await self._get(REFERENCE_GRANTS, adapter.namespace, routes.grant_name(adapter.namespace))
        if grant is None:
            return
        deployments, _ = await self._hub.reader.list_all(
            DEPLOYMENTS, adapter.namespace, label_selector=names.MODEL_LABEL
        )
        if not deployments:
            await self._delete(REFERENCE_GRANTS, adapter.namespace, grant)

    async def _get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return await _unless_absent(lambda: self._hub.reader.get(resource, namespace, name))

    async def _create(self, resource: Resource, namespace: str, body: Object) -> bool:
        """False where the cluster lacks the kind or the namespace. One that is there is as good."""
        try:
            return await _unless_absent(lambda: self._hub.writer.create(resource, namespace, body)) is not None
        except errors.AlreadyExists:
            return True

    async def _delete(self, resource: Resource, namespace: str, found: Object) -> None:
        metadata = found["metadata"]
        await _unless_absent(
            lambda: self._hub.writer.delete(resource, namespace, metadata["name"], uid=metadata["uid"])
        )


class _Taken(Exception):
    """Another's route has the name."""


async def _unless_absent(call: Callable[[], Awaitable[Object]]) -> Object | None:
    try:
        return await call()
    except errors.NotFound:
        return None
