"""One connection pool to the API server and the few calls that controllers make, as plain JSON.

Objects stay dicts: turning 3,000 claims into the client's model classes costs more memory and time than all else that
the operator does. Configuration, TLS and credentials are the ``kubernetes.aio`` client's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import orjson
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from aibrix_operator import __version__
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import Object, Resource

log = logging.getLogger(__name__)

PAGE_OBJECTS = 500
_CALL_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
_LIST_TIMEOUT = aiohttp.ClientTimeout(total=90, sock_connect=10)
# The API server sends a bookmark about every minute. Two missed ones mean a dead connection, which HTTP/1.1 does not
# notice by itself; the watch then goes on from the last resourceVersion, which costs one request.
_WATCH_SILENCE_S = 150.0
# Calls that the server put off are tried again here, up to this often and only for short waits. Longer ones go to
# the caller as Unavailable, whose queue has better things to do meanwhile.
_PUT_OFF_TRIES = 3
_PUT_OFF_MAX_S = 5.0
_MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list. ``continue_token`` is "" on the last page, ``resource_version`` the same on all."""

    items: list[Object]
    resource_version: str
    continue_token: str


class Cluster:
    """The API server. Every method raises ``errors.ClusterError``; nothing else comes out of a call."""

    def __init__(
        self,
        api: kubernetes_client.ApiClient,
        reload_credentials: Callable[[], Awaitable[None]] | None = None,
        *,
        caller: str = "",
    ) -> None:
        """``reload_credentials`` is asked for fresh ones after a 401, once per call. ``caller`` names the process in
        the API server's audit log."""
        self._api = api
        self._reload_credentials = reload_credentials
        api.user_agent = f"aibrix-operator/{__version__}" + (f" ({caller})" if caller else "")

    @classmethod
    async def connect(
        cls,
        kubeconfig: pathlib.Path | None = None,
        *,
        context: str | None = None,
        max_connections: int = 128,
        caller: str = "",
    ) -> Cluster:
        """A client for ``kubeconfig``, or for the cluster that the process runs in when None. Sends nothing yet.

        ``kubernetes_config.ConfigException`` when neither describes a cluster.
        """
        configuration = kubernetes_client.Configuration()
        # Watches hold one connection each for ever, and must leave plenty for writes.
        configuration.connection_pool_maxsize = max_connections
        # aiohttp would look into the environment and for a .netrc at every request, each time through a thread, which
        # is a tenth of what a call costs. The environment's proxy is looked up once instead, in ``_proxy_for``.
        configuration.client_session_kwargs = {"trust_env": False}
        if kubeconfig is None:
            # Re-reads the rotated token by itself, once a minute. (The loaders carry no annotations.)
            kubernetes_config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            configuration.proxy = _proxy_for(configuration.host)
            return cls(kubernetes_client.ApiClient(configuration), caller=caller)

        async def load() -> None:
            # persist_config would write refreshed tokens back into the user's file.
            await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig), context=context, client_configuration=configuration, persist_config=False
            )

        await load()
        configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
        return cls(kubernetes_client.ApiClient(configuration), load, caller=caller)

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]  # the client's own code carries no annotations

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- reading

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        return await self._call("GET", resource, namespace, name)

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", limit: int = PAGE_OBJECTS
    ) -> AsyncIterator[Page]:
        """A consistent list, page by page; ``limit`` 0 asks for all at once. Expired when it took too long to read."""
        query = _selection(label_selector) | ({"limit": str(limit)} if limit else {})
        continue_token = ""
        while True:
            more = {"continue": continue_token} if continue_token else {}
            answer = await self._call("GET", resource, namespace, query=query | more, timeout=_LIST_TIMEOUT)
            metadata = answer.get("metadata", {})
            continue_token = metadata.get("continue", "")
            yield Page(answer.get("items") or [], metadata.get("resourceVersion", ""), continue_token)
            if not continue_token:
                return

    async def list_all(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = ""
    ) -> tuple[list[Object], str]:
        """All objects and the resourceVersion that they were read at. Items carry no kind, as in every list."""
        items: list[Object] = []
        resource_version = ""
        async for page in self.pages(resource, namespace, label_selector=label_selector):
            items += page.items
            resource_version = page.resource_version
        return items, resource_version

    @contextlib.asynccontextmanager
    async def watch_lines(
        self, resource: Resource, namespace: str | None, *, label_selector: str, resource_version: str, timeout_s: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The raw lines of a watch, until the server ends it (after ``timeout_s`` at the latest).

        A line that the end cuts short is left out: the same resourceVersion brings it again.
        """
        call = _describe("WATCH", resource, namespace, None)
        query = _selection(label_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_SILENCE_S)
        path = f"{resource.path(namespace)}?{urlencode(query)}"
        response = await self._send("GET", path, call, None, "", timeout)
        try:
            if response.status >= 400:
                raise await _error(response, call, resource)
            yield _lines(response, call)
        finally:
            # Not release(): that would wait for the rest of an endless body.
            response.close()

    # --- writing

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        return await self._call("POST", resource, namespace, body=body)

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]) -> Object:
        """PUT: with metadata.resourceVersion in ``body`` a Conflict when the object changed meanwhile."""
        return await self._call("PUT", resource, namespace, name, body=body)

    async def delete(self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None) -> Object:
        """Ask for deletion (in the background); with ``uid`` a Conflict when the name belongs to another object.

        Returns the object while something still holds it, else a Status.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return await self._call("DELETE", resource, namespace, name, body=options)

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]) -> Object:
        """A JSON merge patch of the object: None deletes a key, a list is replaced as a whole."""
        return await self._call("PATCH", resource, namespace, name, body=patch)

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, status: Mapping[str, Any], resource_version: str
    ) -> Object:
        """Merge ``status`` into the object's status, provided that the object is still at ``resource_version``."""
        patch = {"metadata": {"resourceVersion": resource_version}, "status": status}
        return await self._call("PATCH", resource, namespace, name, subresource="status", body=patch)

    async def patch_metadata(
        self, resource: Resource, namespace: str, name: str, metadata: Mapping[str, Any], resource_version: str
    ) -> Object:
        """Merge ``metadata``, provided that the object is still at ``resource_version``."""
        patch = {"metadata": {**metadata, "resourceVersion": resource_version}}
        return await self.patch(resource, namespace, name, patch)

    async def add_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object:
        """Append ``finalizer`` to the object as it was read. Conflict when it changed since."""
        finalizers = [*obj["metadata"].get("finalizers", []), finalizer]
        return await self._patch_finalizers(resource, obj, finalizers)

    async def remove_finalizer(self, resource: Resource, obj: Mapping[str, Any], finalizer: str) -> Object:
        """Take ``finalizer`` off the object as it was read; the last one off a deleted object ends it."""
        finalizers = [f for f in obj["metadata"].get("finalizers", []) if f != finalizer]
        return await self._patch_finalizers(resource, obj, finalizers)

    async def _patch_finalizers(self, resource: Resource, obj: Mapping[str, Any], finalizers: list[str]) -> Object:
        metadata = obj["metadata"]
        return await self.patch_metadata(
            resource, metadata["namespace"], metadata["name"], {"finalizers": finalizers}, metadata["resourceVersion"]
        )

    async def patch_annotations(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str | None = None,
    ) -> Object:
        """Set annotations, whatever else changed meanwhile; None deletes one, also one that we have not seen yet.

        With ``uid`` a Conflict when the name belongs to another object by now (a StatefulSet's Pod comes back under
        its name).
        """
        metadata: Object = {"annotations": dict(annotations)}
        if uid is not None:
            metadata["uid"] = uid
        try:
            return await self.patch(resource, namespace, name, {"metadata": metadata})
        except errors.Invalid as error:
            # The API server (1.37) calls another uid in a patch "metadata.uid: field is immutable", with a 422.
            if uid is not None and "metadata.uid" in str(error):
                raise errors.Conflict(str(error), status=error.status) from error
            raise

    # --- the exchange

    async def _call(
        self,
        method: str,
        resource: Resource,
        namespace: str | None,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: aiohttp.ClientTimeout = _CALL_TIMEOUT,
    ) -> Object:
        call = _describe(method, resource, namespace, name, subresource)
        path = resource.path(namespace, name, subresource)
        if query:
            path += f"?{urlencode(query)}"
        content_type = _MERGE_PATCH if method == "PATCH" else "application/json"
        for tries_left in reversed(range(_PUT_OFF_TRIES)):
            response = await self._send(method, path, call, body, content_type, timeout)
            if response.status < 400:
                break
            error = await _error(response, call, resource)
            # Retry-After says that the call was not done, so every verb may be sent again (client-go does the same).
            wait_s = error.retry_after_s if isinstance(error, errors.Unavailable) else None
            if wait_s is None or wait_s > _PUT_OFF_MAX_S or not tries_left:
                raise error
            await asyncio.sleep(wait_s)
        return await _read_object(response, call)

    async def _send(
        self,
        method: str,
        path: str,
        call: str,
        body: Mapping[str, Any] | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """One request; one more with fresh credentials after a 401. The body of the answer is not read yet."""
        response = await self._send_once(method, path, call, body, content_type, timeout)
        if response.status != 401 or self._reload_credentials is None:
            return response
        response.close()
        try:
            await self._reload_credentials()
        except Exception as error:  # whatever an exec plugin or the file brings; its text may hold a token
            raise errors.Denied(f"{call}: could not reload credentials ({type(error).__name__})", status=401) from None
        return await self._send_once(method, path, call, body, content_type, timeout)

    async def _send_once(
        self,
        method: str,
        path: str,
        call: str,
        body: Mapping[str, Any] | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        # Compressing a list takes the API server longer than sending it takes the network.
        headers = {**self._api.default_headers, "Accept": "application/json", "Accept-Encoding": "identity"}
        if content_type:
            headers["Content-Type"] = content_type
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        try:
            raw = await self._api.rest_client.request(  # type: ignore[no-untyped-call]  # no annotations there
                method, self._api.configuration.host + path, headers=headers, body=body, _request_timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unavailable(f"{call}: {_connection_problem(error)}") from error
        response: aiohttp.ClientResponse = raw.response
        return response


def _proxy_for(server: str) -> str | None:
    """What HTTPS_PROXY, HTTP_PROXY and NO_PROXY say for ``server``, as client-go reads them."""
    url = urlsplit(server)
    if urllib.request.proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _selection(label_selector: str) -> dict[str, str]:
    return {"labelSelector": label_selector} if label_selector else {}


def _describe(
    verb: str, resource: Resource, namespace: str | None, name: str | None, subresource: str | None = None
) -> str:
    """Verb and object for messages, e.g. ``PATCH modelclaims/status default/qwen``."""
    verb = "LIST" if verb == "GET" and name is None else verb
    kind = f"{resource.plural}/{subresource}" if subresource else resource.plural
    where = "/".join(part for part in (namespace, name) if part)
    return f"{verb} {kind} {where}" if where else f"{verb} {kind}"


def _connection_problem(error: BaseException) -> str:
    """A timeout has no text of its own."""
    return str(error) or type(error).__name__


async def _read_body(response: aiohttp.ClientResponse, call: str) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.Unavailable(f"{call}: answer was cut: {_connection_problem(error)}") from error


async def _read_object(response: aiohttp.ClientResponse, call: str) -> Object:
    body = await _read_body(response, call)
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise errors.Unavailable(f"{call}: answer of {len(body)} bytes is no JSON object", status=response.status)
    return answer


async def _error(response: aiohttp.ClientResponse, call: str, resource: Resource) -> errors.ClusterError:
    body = await _read_body(response, call)
    retry_after = response.headers.get("Retry-After", "")
    # The other form of the header, a date, is for caches; the API server sends seconds.
    retry_after_s = float(retry_after) if retry_after.isdigit() else None
    return errors.from_answer(call, response.status, body, retry_after_s, is_confidential=resource.is_confidential)


async def _lines(response: aiohttp.ClientResponse, call: str) -> AsyncIterator[bytes]:
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.Unavailable(f"{call}: stream was cut: {_connection_problem(error)}") from error
