"""Looks at a cluster, once. The one module of this package that does I/O; it changes nothing anywhere."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from aibrix_operator import definitions, roles
from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.grant import Grant
from aibrix_operator.cluster.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    PODS,
    Object,
    Resource,
    key_of,
)
from aibrix_operator.doctor import comparing
from aibrix_operator.doctor.facts import Facts, Permission, Pool, PoolPod, Runtime
from aibrix_operator.explain.looking import CannotLook, default_kubeconfig
from aibrix_operator.modelclaim.parse import parse_pool, slim_deployment
from aibrix_operator.operator.grants import GRANTS, LEASE_NAME
from aibrix_operator.runtime_api.client import RuntimeClient, base_url
from aibrix_operator.runtime_api.outcome import Done, NotSent, Refused

RELEASE: Final = "app.kubernetes.io/name=aibrix-operator"
_READ_S: Final = 5.0
_AT_ONCE: Final = 32
_LEASE_LOOK_S: Final = 4.0
"""Longer than a Lease of the default duration may go without a renewal."""
_REVIEWS = "authorization.k8s.io"

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Scope:
    """What is looked at."""

    namespace: str | None = None
    """Of warm Pods; None: of all."""
    own_namespace: str | None = None
    """Of the Pod that this runs in; None: outside of a cluster, as somebody who may ask about others."""
    lease_name: str = LEASE_NAME
    lease_look_s: float = _LEASE_LOOK_S


class Doctor:
    """Looks at one cluster."""

    def __init__(
        self, cluster: Cluster, with_token: RuntimeClient, without: RuntimeClient, *, has_token: bool, scope: Scope
    ) -> None:
        """``without`` asks sidecars as somebody who has no token."""
        self._cluster = cluster
        self._with_token = with_token
        self._without = without
        self._has_token = has_token
        self._scope = scope
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._unseen: list[str] = []

    async def look(self) -> Facts:
        """All facts. CannotLook when the API server does not answer at all."""
        try:
            await self._cluster.list_all(PODS, self._scope.namespace or self._scope.own_namespace)
        except (errors.Unavailable, errors.Denied) as error:
            raise CannotLook(str(error)) from error
        found, release, warm, deployments = await asyncio.gather(
            self._try("definitions", self._definitions(), ()),
            self._try("Pods of the release", self._list(PODS, self._scope.own_namespace, RELEASE), []),
            self._try("warm Pods", self._list(PODS, self._scope.namespace, names.POOL_LABEL), []),
            self._try("policies of pools", self._list(DEPLOYMENTS, self._scope.namespace, ""), []),
        )
        pods = comparing.component_pods(release)
        namespace = next((p.namespace for p in pods if p.component == "operator"), self._scope.own_namespace)
        lease, permissions, pool_pods = await asyncio.gather(
            self._try("Lease", self._lease(namespace), None),
            self._permissions(release),
            asyncio.gather(*(self._read(pod) for pod in warm)),
        )
        pools = [parse_pool(slim_deployment(body)) for body in deployments]
        return Facts(
            definitions=tuple(found),
            permissions=permissions,
            pods=pods,
            lease=lease,
            pool_pods=tuple(pool_pods),
            pools=tuple(Pool(p.namespace, p.deployment, p.error) for p in pools if p.annotation),
            unseen=tuple(self._unseen),
        )

    async def _try(self, what: str, look: Awaitable[AnswerT], otherwise: AnswerT) -> AnswerT:
        try:
            return await look
        except errors.ClusterError as error:
            self._unseen.append(f"the {what} could not be looked at: {error}")
            return otherwise

    async def _list(self, resource: Resource, namespace: str | None, selector: str) -> list[Object]:
        found, _ = await self._cluster.list_all(resource, namespace, label_selector=selector)
        return found

    async def _definitions(self) -> Iterable[Any]:
        present = {obj["metadata"]["name"]: obj for obj in await self._list(CUSTOM_RESOURCE_DEFINITIONS, None, "")}
        return [comparing.definition(ours, present.get(ours["metadata"]["name"])) for ours in definitions.find()]

    async def _lease(self, namespace: str | None) -> Any:
        if namespace is None:
            return None
        looks: list[Object | None] = []
        for pause_s in (self._scope.lease_look_s, 0.0):
            try:
                looks.append(await self._cluster.get(LEASES, namespace, self._scope.lease_name))
            except errors.NotFound:
                looks.append(None)
            await asyncio.sleep(pause_s)
        return comparing.lease(namespace, self._scope.lease_name, looks[0], looks[1])

    # --- rights

    async def _permissions(self, release: list[Object]) -> tuple[Permission, ...]:
        """Of this Pod's own account in a cluster; else of the accounts that the release's Pods have."""
        if self._scope.own_namespace is not None:
            asked = [("operator", self._scope.own_namespace, "")]
        else:
            accounts = {}
            for pod in release:
                component = (pod["metadata"].get("labels") or {}).get(comparing.COMPONENT_LABEL, "")
                accounts[component] = (key_of(pod)[0], pod["spec"].get("serviceAccountName", "default"))
            asked = [(component, *accounts[component]) for component in GRANTS if component in accounts]
        questions = [
            self._may(component, grant, verb, namespace, account)
            for component, namespace, account in asked
            for grant in GRANTS[component]
            for verb in grant.verbs
            if self._is_asked_about(grant)
        ]
        return tuple(await asyncio.gather(*questions))

    def _is_asked_about(self, grant: Grant) -> bool:
        """Secrets are granted by name, as the values list them; an operator of one namespace has no cluster role.

        What only a choice in the values gives is not missed here: who asked for it without is told by the object.
        """
        place = roles.where(grant)
        return (
            not grant.option
            and place is not roles.Where.LISTED
            and (place is not roles.Where.CLUSTER or self._scope.namespace is None)
        )

    async def _may(self, component: str, grant: Grant, verb: str, own_namespace: str, account: str) -> Permission:
        """One review; ``account`` "" asks about whoever asks."""
        resource, _, subresource = grant.resource.partition("/")
        where = own_namespace if grant.namespaced_only else self._scope.namespace or ""
        attributes: Object = {"group": grant.group, "resource": resource, "verb": verb, "namespace": where}
        attributes |= ({"subresource": subresource} if subresource else {}) | (
            {"name": grant.names[0]} if grant.names else {}
        )
        plural, spec = "selfsubjectaccessreviews", Object(resourceAttributes=attributes)
        if account:
            plural, spec = "subjectaccessreviews", spec | {"user": f"system:serviceaccount:{own_namespace}:{account}"}
        named = f"{grant.resource}.{grant.group}" if grant.group else grant.resource
        try:
            async with self._turns:
                answer = await self._cluster.create(Resource(_REVIEWS, "v1", plural), None, {"spec": spec})
        except errors.ClusterError:
            return Permission(component, verb, named, where, None)
        return Permission(component, verb, named, where, bool((answer.get("status") or {}).get("allowed")))

    # --- sidecars

    async def _read(self, body: Object) -> PoolPod:
        pod, status = comparing.pool_pod(body), body.get("status") or {}
        ip = status.get("podIP") or ""
        if status.get("phase") != "Running" or not ip or "deletionTimestamp" in body["metadata"]:
            return pod
        async with self._turns:
            try:
                async with asyncio.timeout(_READ_S):
                    return await self._ask(pod, base_url(ip))
            except TimeoutError:
                return dataclasses.replace(pod, runtime=Runtime.SILENT)

    async def _ask(self, pod: PoolPod, url: str) -> PoolPod:
        outcome = await self._without.snapshot(url)
        is_open = isinstance(outcome, Done)
        if isinstance(outcome, Refused) and outcome.status == 401 and self._has_token:
            outcome = await self._with_token.snapshot(url)
        match outcome:
            case Done(snapshot):
                return dataclasses.replace(
                    pod,
                    runtime=Runtime.READ,
                    is_open=is_open,
                    has_cards=snapshot.usable_bytes > 0,
                    skew_s=comparing.skew_s(snapshot.observed_at, datetime.now(UTC)),
                )
            case NotSent():
                return dataclasses.replace(pod, runtime=Runtime.SILENT, message=outcome.message)
            case Refused(message, 401):
                return dataclasses.replace(pod, runtime=Runtime.REFUSED, message=message)
            case _:
                return dataclasses.replace(pod, runtime=Runtime.UNREADABLE, message=outcome.message)


@asynccontextmanager
async def connect(kubeconfig: Path | None, token: str | None, scope: Scope) -> AsyncIterator[Doctor]:
    """A doctor for the cluster of ``kubeconfig``, else of kubectl's, else for the one that this process runs in."""
    path = kubeconfig or (None if scope.own_namespace is not None else default_kubeconfig())
    try:
        cluster = await Cluster.connect(path, caller="doctor")
    except Exception as error:  # the client's own errors, and whatever reading the file or an exec plugin brings
        raise CannotLook(f"no cluster to look at: {error}") from error
    async with cluster, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        with_token, without = RuntimeClient(session, token), RuntimeClient(session)
        yield Doctor(cluster, with_token, without, has_token=token is not None, scope=scope)


async def examine(kubeconfig: Path | None, token: str | None, scope: Scope) -> Facts:
    """Connect and look once."""
    async with connect(kubeconfig, token, scope) as doctor:
        return await doctor.look()
