"""The only file of the kind that knows kopf. It says what changed, never what to do about it."""

from __future__ import annotations

from typing import Any

import kopf

from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.cluster.watch import Change, without_bookkeeping
from aibrix_operator.modelclaim import reconcile


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


def register(registry: kopf.OperatorRegistry) -> None:
    """Add the handlers to ``registry``; they expect ``memo.world``."""

    @kopf.on.event(MODEL_CLAIMS.group, MODEL_CLAIMS.version, MODEL_CLAIMS.plural, registry=registry)
    async def claim_changed(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
        body = without_bookkeeping(dict(event["object"]))
        if event["type"] == "DELETED":
            reconcile.claim_changed(memo.world, Change.DELETED, body, None)
        else:
            # A list's objects come without a type.
            reconcile.claim_changed(memo.world, Change.MODIFIED, None, body)
