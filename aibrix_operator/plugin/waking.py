"""Ask for a sleeping claim to be woken, as a gateway does when a request comes: by an annotation on its Pod.

The operator decides what becomes of it, and takes the annotation off. There is no such request for sleeping or moving:
what idles sleeps by its pool's policy, and the operator moves what has no room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from aibrix_operator.api import names
from aibrix_operator.api.conditions import rfc3339
from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS, Object, Resource
from aibrix_operator.explain.looking import CannotLook
from aibrix_operator.modelclaim.parse import UnreadableClaim, parse_claim
from aibrix_operator.modelclaim.snapshot import Claim

TRIES = 5
"""A Pod changes often while its engines sleep and wake; who reads it anew each time is through soon."""
_POLL_S = 0.5


class Calls(Protocol):
    """The calls of ``cluster.client.Cluster`` that this needs."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...

    async def patch_metadata(
        self, resource: Resource, namespace: str, name: str, metadata: dict[str, Any], resource_version: str
    ) -> Object: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of the request on one Pod."""

    pod: str
    since: str
    """When it was asked for: now, or by somebody before."""
    is_new: bool


@dataclass(frozen=True, slots=True)
class Request:
    """What asking for a claim came to."""

    has_engine: bool
    """False: it has no card, and there is nobody to wake."""
    asked: tuple[Asked, ...]
    """One for each instance that sleeps."""


async def ask(cluster: Calls, namespace: str, name: str, now: Callable[[], datetime]) -> Request:
    """Ask for every sleeping instance of the claim. Asking again changes nothing.

    CannotLook when there is no such claim, or the API server refuses.
    """
    claim = await _claim(cluster, namespace, name)
    asleep = [i.pod for i in claim.status.instances if i.phase is InstancePhase.SLEEPING]
    asked = [await _ask_on(cluster, claim, pod, now) for pod in asleep]
    return Request(bool(claim.status.instances), tuple(asked))


async def wait(cluster: Calls, namespace: str, name: str, timeout_s: float) -> bool:
    """Whether the claim serves within ``timeout_s``. CannotLook as ``ask`` says."""
    try:
        async with asyncio.timeout(timeout_s):
            while not _serves(await _claim(cluster, namespace, name)):  # noqa: ASYNC110 - it happens in the cluster
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
    return True


def _serves(claim: Claim) -> bool:
    return bool(claim.status.instances) and all(i.phase is InstancePhase.ACTIVE for i in claim.status.instances)


async def _claim(cluster: Calls, namespace: str, name: str) -> Claim:
    key = names.claim_key(namespace, name)
    try:
        return parse_claim(await cluster.get(MODEL_CLAIMS, namespace, name))
    except errors.NotFound:
        raise CannotLook(f"there is no ModelClaim {key}") from None
    except errors.ClusterError as error:
        raise CannotLook(str(error)) from error
    except UnreadableClaim as error:
        raise CannotLook(f"claim {key}: {error}") from None


async def _ask_on(cluster: Calls, claim: Claim, pod: str, now: Callable[[], datetime]) -> Asked:
    annotation = names.wake_annotation(claim.name)
    for _ in range(TRIES):
        try:
            metadata = (await cluster.get(PODS, claim.namespace, pod))["metadata"]
            asked = metadata.get("annotations", {}).get(annotation)
            if asked:
                return Asked(pod, asked, is_new=False)
            text = rfc3339(now())
            # Over the version that was read: a Pod that changed meanwhile may carry a request already.
            change = {"annotations": {annotation: text}}
            await cluster.patch_metadata(PODS, claim.namespace, pod, change, metadata["resourceVersion"])
        except errors.Conflict:
            continue
        except errors.ClusterError as error:
            raise CannotLook(f"pod {names.claim_key(claim.namespace, pod)} could not be asked: {error}") from error
        return Asked(pod, text, is_new=True)
    raise CannotLook(f"pod {names.claim_key(claim.namespace, pod)} changed {TRIES} times meanwhile; try again")
