"""An API server's lists and watches of several kinds, in memory, with its outages."""

import asyncio
import contextlib
import itertools
import json

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Page


class Server:
    """Stands for a ``Cluster`` as far as a ``Watch`` uses one."""

    def __init__(self):
        self.absent = set()
        """Plurals of kinds that are not served."""
        self.held = set()
        """Plurals whose lists wait."""
        self.requests = []
        """(verb, plural, label selector)"""
        self._is_up = True
        self._outages = 0
        self._objects = {}
        self._history = []
        self._oldest = 0
        self._versions = itertools.count(1)
        self._version = 0
        self._news = asyncio.Condition()
        self._tasks = set()

    # --- what happens to the cluster

    def put(self, plural, body):
        """Create or replace an object."""
        key = (plural, body["metadata"]["namespace"], body["metadata"]["name"])
        change = "MODIFIED" if key in self._objects else "ADDED"
        self._version = next(self._versions)
        body = body | {"metadata": body["metadata"] | {"resourceVersion": str(self._version)}}
        self._objects[key] = body
        self._tell(change, plural, body)

    def remove(self, plural, name, namespace="default"):
        body = self._objects.pop((plural, namespace, name))
        self._version = next(self._versions)
        self._tell("DELETED", plural, body | {"metadata": body["metadata"] | {"resourceVersion": str(self._version)}})

    def stop(self):
        """All calls fail, and all watches end."""
        self._is_up = False
        self._outages += 1
        self._wake()

    def start(self):
        self._is_up = True

    def forget_history(self):
        """Watches from before now are refused."""
        self._oldest = self._version + 1
        self._version = next(self._versions)

    def let_go(self, plural):
        """Lists of the kind are answered again."""
        self.held.discard(plural)
        self._wake()

    # --- what was asked

    def asked(self, plural):
        return any(kind == plural for _, kind, _ in self.requests)

    def lists(self):
        return sum(1 for verb, _, _ in self.requests if verb == "LIST")

    def selectors(self, plural):
        return {selector for _, kind, selector in self.requests if kind == plural}

    # --- the calls

    async def pages(self, resource, namespace=None, *, label_selector="", limit=500):
        self.requests.append(("LIST" if limit != 1 else "LOOK", resource.plural, label_selector))
        self._check(resource)
        async with self._news:
            await self._news.wait_for(lambda: resource.plural not in self.held)
        found = [
            json.loads(json.dumps(body))
            for (plural, where, _), body in self._objects.items()
            if plural == resource.plural and namespace in (None, where)
        ]
        yield Page(found, str(self._version), "")

    @contextlib.asynccontextmanager
    async def watch_lines(self, resource, namespace, *, label_selector, resource_version, timeout_s):
        self.requests.append(("WATCH", resource.plural, label_selector))
        self._check(resource)
        if int(resource_version) < self._oldest:
            raise errors.Expired("too old", status=410)
        yield self._lines(resource, namespace, int(resource_version))

    async def _lines(self, resource, namespace, since):
        outages = self._outages
        while True:
            for version, plural, where, line in list(self._history):
                if version > since and plural == resource.plural and namespace in (None, where):
                    yield line
            since = self._version
            async with self._news:
                while self._version <= since and self._outages == outages:
                    await self._news.wait()
            if self._outages != outages:
                raise errors.Unavailable("stream was cut")

    def _check(self, resource):
        if not self._is_up:
            raise errors.Unavailable("no connection")
        if resource.plural in self.absent:
            raise errors.NotFound("no such kind", status=404)

    def _tell(self, change, plural, body):
        line = json.dumps({"type": change, "object": body}).encode()
        self._history.append((self._version, plural, body["metadata"]["namespace"], line))
        self._wake()

    def _wake(self):
        task = asyncio.get_running_loop().create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self):
        async with self._news:
            self._news.notify_all()
