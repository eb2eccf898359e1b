"""A small API server for one kind of object, with the faults of a real one on request.

It keeps what the real one keeps: one growing resourceVersion, conflicts, finalizers, pages with continue tokens,
watches that replay from a version and refuse one that was compacted away.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import pathlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from aibrix_operator.cluster.resource import MODEL_CLAIMS, Key

COLLECTION = MODEL_CLAIMS.path(None)
NAMESPACED = MODEL_CLAIMS.path("default").replace("/default/", "/{namespace}/")


@dataclass
class Answer:
    """What the next request of a verb gets instead of the real answer."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    hang_up: bool = False


def status(code: int, reason: str, message: str = "no") -> Answer:
    return Answer(code, {"kind": "Status", "code": code, "reason": reason, "message": message})


class FakeApiServer:
    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0  # watches from an older version are refused
        self.objects: dict[Key, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.callers: list[str] = []  # User-Agent of each request
        self.bodies: list[Any] = []
        self.answers: dict[str, deque[Answer]] = {}
        self.tokens: set[str] | None = None  # None: everybody may
        self.honours_limit = True
        self._history: list[tuple[int, bytes]] = []
        self._watchers: list[asyncio.Queue[bytes | None]] = []
        self._watchers_changed = asyncio.Condition()
        self._uids = itertools.count(1)
        app = web.Application(middlewares=[self._gate])
        for path in (COLLECTION, NAMESPACED):
            app.router.add_get(path, self._collection)
        app.router.add_post(NAMESPACED, self._create)
        app.router.add_get(NAMESPACED + "/{name}", self._get)
        app.router.add_patch(NAMESPACED + "/{name}", self._patch)
        app.router.add_patch(NAMESPACED + "/{name}/{subresource}", self._patch)
        app.router.add_delete(NAMESPACED + "/{name}", self._delete)
        self._server = TestServer(app)

    async def __aenter__(self) -> FakeApiServer:
        await self._server.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end_watches()
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    # --- what the test does to the cluster

    def put(self, name: str, *, namespace: str = "default", **fields: Any) -> dict[str, Any]:
        """Create the object, or change its top-level ``fields``."""
        key = (namespace, name)
        old = self.objects.get(key)
        identity = {"name": name, "namespace": namespace, "uid": f"uid-{next(self._uids)}"}
        metadata = {**(identity if old is None else old["metadata"]), **fields.get("metadata", {})}
        obj = {**copy.deepcopy(old or {}), **fields, "metadata": metadata}
        return self._store(key, obj, "ADDED" if old is None else "MODIFIED")

    def remove(self, name: str, *, namespace: str = "default") -> None:
        obj = self.objects.pop((namespace, name))
        self.version += 1
        final = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self._tell(orjson.dumps({"type": "DELETED", "object": final}))

    def bookmark(self) -> None:
        self._tell(orjson.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}))

    def forget_history(self) -> None:
        """As after etcd's compaction: a watch from before now is refused."""
        self.compacted = self.version

    def say(self, line: bytes) -> None:
        """Put a raw line (or part of one) on every open watch."""
        for watcher in self._watchers:
            watcher.put_nowait(line)

    def end_watches(self) -> None:
        """End every open watch, as the server does at its timeout or when it restarts."""
        for watcher in self._watchers:
            watcher.put_nowait(None)

    def next_answer(self, verb: str, *answers: Answer) -> None:
        """``verb`` is the HTTP method in capitals, or WATCH or LIST."""
        self.answers.setdefault(verb, deque()).extend(answers)

    async def watched(self, watchers: int = 1) -> None:
        """Wait until ``watchers`` watches are open."""
        async with asyncio.timeout(5), self._watchers_changed:
            await self._watchers_changed.wait_for(lambda: len(self._watchers) == watchers)

    def count(self, verb: str) -> int:
        return sum(1 for asked, _, _ in self.requests if asked == verb)

    # --- the server

    def _store(self, key: Key, obj: dict[str, Any], change: str) -> dict[str, Any]:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = obj
        self._tell(orjson.dumps({"type": change, "object": obj}))
        return copy.deepcopy(obj)

    def _tell(self, line: bytes) -> None:
        self._history.append((self.version, line))
        self.say(line + b"\n")

    @web.middleware
    async def _gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        verb = request.method
        if verb == "GET" and "name" not in request.match_info:
            verb = "WATCH" if "watch" in request.query else "LIST"
        self.requests.append((verb, request.path, dict(request.query)))
        self.callers.append(request.headers.get("User-Agent", ""))
        if (
            self.tokens is not None
            and request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens
        ):
            return _respond(status(401, "Unauthorized"))
        waiting = self.answers.get(verb)
        if waiting:
            answer = waiting.popleft()
            if answer.hang_up:
                assert request.transport is not None
                request.transport.close()
            return _respond(answer)
        return await handler(request)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        namespace = request.match_info.get("namespace")
        if "watch" in request.query:
            return await self._watch(request)
        found = [obj for (ns, _), obj in sorted(self.objects.items()) if namespace in (None, ns)]
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(found) + 1
        metadata = {"resourceVersion": str(self.version)}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        return web.json_response({"metadata": metadata, "items": found[start : start + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if since < self.compacted:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await response.write(orjson.dumps({"type": "ERROR", "object": gone}) + b"\n")
            return response
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, line in self._history:
            if version > since:
                lines.put_nowait(line + b"\n")
        await self._watching(lines, is_open=True)
        try:
            while (line := await lines.get()) is not None:
                await response.write(line)
        finally:
            await self._watching(lines, is_open=False)
        return response

    async def _watching(self, lines: asyncio.Queue[bytes | None], *, is_open: bool) -> None:
        async with self._watchers_changed:
            if is_open:
                self._watchers.append(lines)
            else:
                self._watchers.remove(lines)
            self._watchers_changed.notify_all()

    async def _get(self, request: web.Request) -> web.Response:
        obj = self.objects.get(_key(request))
        return _respond(status(404, "NotFound")) if obj is None else web.json_response(obj)

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        namespace, name = request.match_info["namespace"], body["metadata"]["name"]
        if (namespace, name) in self.objects:
            return _respond(status(409, "AlreadyExists"))
        fields = {k: v for k, v in body.items() if k != "metadata"}
        return web.json_response(self.put(name, namespace=namespace, **fields), status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/merge-patch+json"
        patch = await request.json()
        self.bodies.append(patch)
        key = _key(request)
        old = self.objects.get(key)
        if old is None:
            return _respond(status(404, "NotFound"))
        metadata = patch.get("metadata", {})
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            return _respond(status(422, "Invalid", "metadata.uid: Invalid value: field is immutable"))
        if metadata.get("resourceVersion", old["metadata"]["resourceVersion"]) != old["metadata"]["resourceVersion"]:
            return _respond(status(409, "Conflict", "the object has been modified"))
        if request.match_info.get("subresource") == "status":
            patch = {"status": patch["status"]}
        new = _merged(old, patch)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self.objects[key] = new
            self.remove(key[1], namespace=key[0])
            return web.json_response(new)
        return web.json_response(self._store(key, new, "MODIFIED"))

    async def _delete(self, request: web.Request) -> web.Response:
        key = _key(request)
        obj = self.objects.get(key)
        if obj is None:
            return _respond(status(404, "NotFound"))
        wanted = (await request.json()).get("preconditions", {}).get("uid", obj["metadata"]["uid"])
        if wanted != obj["metadata"]["uid"]:
            return _respond(status(409, "Conflict"))
        if obj["metadata"].get("finalizers"):
            marked = {"deletionTimestamp": "2026-11-30T00:00:00Z", "deletionGracePeriodSeconds": 0}
            return web.json_response(self.put(key[1], namespace=key[0], metadata=marked))
        self.remove(key[1], namespace=key[0])
        return web.json_response({"kind": "Status", "status": "Success"})


def _key(request: web.Request) -> Key:
    return request.match_info["namespace"], request.match_info["name"]


def _respond(answer: Answer) -> web.Response:
    body = answer.body if isinstance(answer.body, bytes) else orjson.dumps(answer.body)
    return web.Response(status=answer.status, body=body, headers=answer.headers, content_type="application/json")


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def write_kubeconfig(path: pathlib.Path, url: str, token: str) -> pathlib.Path:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "fake", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {"token": token}}],
                "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
                "current-context": "fake",
            }
        )
    )
    return path
