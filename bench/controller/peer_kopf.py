"""A minimal kopf operator, as its tutorial shows it: one status patch for each new ModelClaim."""

from __future__ import annotations

from typing import Any

import kopf

from aibrix_operator.api import names


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False  # the other peers post no Events either


@kopf.on.create(names.MODEL_GROUP, names.MODEL_VERSION, "modelclaims")
async def created(patch: kopf.Patch, **_: Any) -> None:
    patch.status["phase"] = "Active"
