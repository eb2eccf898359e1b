"""The only file of the kind that knows kopf. It says what changed, never what to do about it."""

from __future__ import annotations

from typing import Any

import kopf

from aibrix_operator.cluster.resource import MODEL_CLAIMS
from aibrix_operator.cluster.watch import Change, without_bookkeeping
from aibrix_operator.modelclaim import reconcile


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
