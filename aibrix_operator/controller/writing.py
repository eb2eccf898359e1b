"""Carries out one step on the API server, tells the caches what came of it, and sorts how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import Object, Resource, key_of
from aibrix_operator.controller.cache import Cache, owner_uid
from aibrix_operator.controller.hub import Hub
from aibrix_operator.controller.status import difference
from aibrix_operator.controller.steps import Create, Delete, Finished, Patch, Replace, SetFinalizer, SetStatus

OthersStep: TypeAlias = Create | Delete | Patch | Replace
OwnStep: TypeAlias = SetFinalizer | SetStatus


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended. At most one of the two is set; neither when it is done."""

    refused: Finished | None = None
    """The API server says no, and will say so again until something else changes."""
    retry: errors.ClusterError | None = None
    """Look again: the object is another by now, or the server did not answer."""
    is_unsure: bool = False
    """It may have been done."""

    @property
    def is_done(self) -> bool:
        return self.refused is None and self.retry is None


DONE = Ended()


class Writing:
    """The writes of one kind."""

    def __init__(self, kind: str, resource: Resource, hub: Hub, caches: Mapping[Resource, Cache]) -> None:
        """``caches``: of all kinds that are read, our own among them."""
        self._kind = kind
        self._resource = resource
        self._hub = hub
        self._caches = caches

    async def write(self, step: OthersStep, own: Object) -> Ended:
        """A step on another object than our own."""
        verb = type(step).__name__.lower()
        try:
            await self._send(step)
        except errors.ClusterError as error:
            ended = await self._failed(step, error, own)
        else:
            ended = DONE
        self._count(verb, step.resource, ended)
        return ended

    async def write_own(self, step: OwnStep, own: Object) -> tuple[Ended, Object]:
        """A step on our own object as it was looked at; returns the object as it is then."""
        verb, cache = ("status" if isinstance(step, SetStatus) else "finalizer"), self._caches[self._resource]
        try:
            answer = await self._send_own(step, own)
        except errors.ClusterError as error:
            ended = _sorted(error)
            if isinstance(error, errors.NotFound):
                cache.gone(key_of(own), own["metadata"]["uid"])
                ended = DONE
            elif ended.retry is None:
                ended = Ended(refused=Finished(step, error=error))
            self._count(verb, self._resource, ended)
            return ended, own
        if answer is None:
            return DONE, own
        cache.wrote(answer)
        self._count(verb, self._resource, DONE)
        return DONE, answer

    async def _send(self, step: OthersStep) -> None:
        writer, cache = self._hub.writer, self._caches.get(step.resource)
        answer: Object
        match step:
            case Create(resource=resource, body=body):
                answer = await writer.create(resource, body["metadata"].get("namespace"), body)
            case Replace(resource=resource, body=body):
                namespace, name = key_of(body)
                answer = await writer.replace(resource, namespace or None, name, body)
            case Patch(resource=resource, ref=ref, patch=patch, resource_version=version):
                # The UID makes a namesake of the object a conflict.
                guard = {"uid": ref.uid} | ({"resourceVersion": version} if version else {})
                whole = {**patch, "metadata": {**patch.get("metadata", {}), **guard}}
                answer = await writer.patch(resource, ref.namespace or None, ref.name, whole)
            case Delete(resource=resource, ref=ref):
                answer = await writer.delete(resource, ref.namespace or None, ref.name, uid=ref.uid)
                if cache is not None:
                    cache.asked_to_delete((ref.namespace, ref.name), ref.uid, answer)
                return
        if cache is not None:
            cache.wrote(answer)

    async def _send_own(self, step: OwnStep, own: Object) -> Object | None:
        """None: nothing was to be written."""
        writer, metadata = self._hub.writer, own["metadata"]
        if isinstance(step, SetFinalizer):
            if (step.finalizer in (metadata.get("finalizers") or ())) == step.present:
                return None
            change = writer.add_finalizer if step.present else writer.remove_finalizer
            return await change(self._resource, own, step.finalizer)
        patch = difference(own.get("status") or {}, step.status)
        if not patch:
            return None
        namespace, name = key_of(own)
        return await writer.patch_status(self._resource, namespace, name, patch, metadata["resourceVersion"])

    async def _failed(self, step: OthersStep, error: errors.ClusterError, own: Object) -> Ended:
        cache = self._caches.get(step.resource)
        is_gone = isinstance(error, errors.NotFound | errors.Conflict) or _is_another(error)
        match step:
            case Delete(ref=ref) if is_gone:  # a conflict: the name belongs to another object
                if cache is not None:
                    cache.gone((ref.namespace, ref.name), ref.uid)
                return DONE
            case Patch(ref=ref) if is_gone:
                if cache is not None and not isinstance(error, errors.Conflict):
                    cache.gone((ref.namespace, ref.name), ref.uid)
                return _look_again(error)
            case Replace(body=body) if isinstance(error, errors.NotFound):
                if cache is not None:
                    cache.gone(key_of(body), body["metadata"].get("uid", ""))
                return _look_again(error)
            case Create() if isinstance(error, errors.AlreadyExists):
                return await self._found(step, error, own)
            case Create() | Delete() if isinstance(error, errors.Unavailable):
                return Ended(retry=error, is_unsure=True)
        ended = _sorted(error)
        return ended if ended.retry is not None else Ended(refused=Finished(step, error=error))

    async def _found(self, step: Create, error: errors.AlreadyExists, own: Object) -> Ended:
        """Somebody has the name: our own earlier try, whose answer was lost or which no watch has told yet, or
        another's object, which ``decide`` is told of."""
        namespace, name = key_of(step.body)
        try:
            found = await self._hub.reader.get(step.resource, namespace or None, name)
        except errors.ClusterError as problem:
            return _look_again(problem)
        cache = self._caches.get(step.resource)
        if cache is not None and owner_uid(found) == own["metadata"]["uid"]:
            cache.wrote(found)
        return Ended(refused=Finished(step, error=error, found=found))

    def _count(self, verb: str, resource: Resource, ended: Ended) -> None:
        result = "done"
        if ended.refused is not None:
            result = "refused"
        elif ended.retry is not None:
            result = "conflict" if isinstance(ended.retry, errors.Conflict) else "failed"
        self._hub.metrics.writes.labels(self._kind, verb, resource.plural, result).inc()


def _look_again(error: errors.ClusterError) -> Ended:
    """The object is another by now, or gone: nothing is wrong, and no time heals it but a look."""
    return Ended(retry=error if error.temporary else errors.Conflict(str(error), status=error.status))


def _sorted(error: errors.ClusterError) -> Ended:
    """Denied is a refusal too: it may be a quota, and a condition is to say so."""
    is_retried = error.temporary and not isinstance(error, errors.Denied)
    return Ended(retry=error) if is_retried else Ended()


def _is_another(error: errors.ClusterError) -> bool:
    """The API server (1.37) calls another UID in a patch an immutable field, with a 422."""
    return isinstance(error, errors.Invalid) and "metadata.uid" in str(error)
