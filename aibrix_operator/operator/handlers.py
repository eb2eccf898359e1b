"""The only file that wires kopf: of each of our own kinds it says what changed, never what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import kopf

from aibrix_operator.cluster.resource import Resource
from aibrix_operator.cluster.watch import Change, without_bookkeeping
from aibrix_operator.controller.controller import Feed


class NoDifferences(kopf.DiffBaseStorage):
    """For handlers that are told of events and never of changes: kopf need not copy each object to compare it.

    The copies of its own storages take more than a third of what kopf spends on an event (kopf 1.45).
    """

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        """What of an object could differ: nothing that anybody asks for."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Nothing is stored."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is to be stored: no write of kopf's may touch an object."""


def register(registry: kopf.OperatorRegistry, feeds: Mapping[Resource, Sequence[Feed]]) -> None:
    """Add a handler for each own kind to ``registry``, which tells its feeds."""
    for resource, told in feeds.items():
        _register(registry, resource, told)


def _register(registry: kopf.OperatorRegistry, resource: Resource, feeds: Sequence[Feed]) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)
    async def changed(event: kopf.RawEvent, **_: Any) -> None:
        body = without_bookkeeping(dict(event["object"]))
        for feed in feeds:
            if event["type"] == "DELETED":
                feed.changed(Change.DELETED, body, None)
            else:
                # A list's objects come without a type.
                feed.changed(Change.MODIFIED, None, body)
