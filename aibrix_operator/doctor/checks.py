"""What is wrong, and what to do: pure functions of the facts, one a subject, each a few findings at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aibrix_operator.api import names
from aibrix_operator.doctor.facts import Facts, PoolPod, Runtime, Standing

CLOCKS_AGREE_S: Final = 5.0
"""Idle times and wake requests are told in whole seconds; readings older than a few seconds are not believed."""
_NAMED: Final = 5
"""More objects of one kind are counted only."""


class Level(StrEnum):
    """How bad."""

    ERROR = "error"
    """Models are not served, or will not be."""
    WARNING = "warning"
    NOTE = "note"
    """It could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    level: Level
    text: str
    remedy: str


def examine(facts: Facts) -> list[Finding]:
    """Everything that is wrong, the worst first, else in the order of the checks."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: list(Level).index(finding.level))


def definitions(facts: Facts) -> Iterator[Finding]:
    """Whether each kind is there, as this version knows it."""
    upgrade = "`helm upgrade` brings it (crds.enabled), or `kubectl apply -f crds/`"
    for definition in facts.definitions:
        match definition.standing:
            case Standing.MISSING:
                yield Finding(Level.ERROR, f"the definition {definition.name} is missing", upgrade)
            case Standing.OTHER:
                yield Finding(
                    Level.ERROR,
                    f"the definition {definition.name} is not this version's: {definition.reason}",
                    f"{upgrade}; definitions come before the operator",
                )
            case Standing.NOT_SERVED:
                yield Finding(
                    Level.ERROR,
                    f"the definition {definition.name} is not served: {definition.reason}",
                    f"see `kubectl describe crd {definition.name}`",
                )


def permissions(facts: Facts) -> Iterator[Finding]:
    """Whether each component may do what its code asks for."""
    for component in dict.fromkeys(permission.component for permission in facts.permissions):
        own = [permission for permission in facts.permissions if permission.component == component]
        missing = [_right(p.verb, p.resource, p.namespace) for p in own if p.is_allowed is False]
        if missing:
            yield Finding(
                Level.ERROR,
                f"the {component} may not {_some(missing)}",
                "the chart's roles grant it: `helm upgrade`, or compare its ClusterRole with files/grants.yaml",
            )
        if any(p.is_allowed is None for p in own):
            yield Finding(
                Level.NOTE,
                f"what the {component} may do cannot be asked from here",
                "run this as somebody who may create subjectaccessreviews, or in the operator's Pod",
            )


def _right(verb: str, resource: str, namespace: str) -> str:
    return f"{verb} {resource}" + (f" in {namespace}" if namespace else "")


def components(facts: Facts) -> Iterator[Finding]:
    """Whether operator and gateway run."""
    for component, level in (("operator", Level.ERROR), ("gateway", Level.WARNING)):
        own = [pod for pod in facts.pods if pod.component == component]
        waiting = [pod for pod in own if not pod.is_ready]
        if not own:
            yield Finding(
                level,
                f"there is no {component}: no Pod has the labels of one",
                "install the chart, or look in its namespace: `kubectl get deployments -A`",
            )
        elif waiting:
            reasons = ", ".join(sorted({pod.reason for pod in waiting if pod.reason})) or "its readiness probe says no"
            first = waiting[0]
            yield Finding(
                Level.ERROR if len(waiting) == len(own) else Level.WARNING,
                f"{len(waiting)} of {len(own)} {component} Pods are not ready: {reasons}",
                f"`kubectl -n {first.namespace} describe pod {first.name}`; the body of its /readyz says why",
            )


def lease(facts: Facts) -> Iterator[Finding]:
    """Whether one operator leads, by the clock of the API server."""
    found = facts.lease
    if found is None:
        return
    key = names.claim_key(found.namespace, found.name)
    if not found.holder:
        yield Finding(
            Level.ERROR,
            f"nobody leads: the Lease {key} has no holder",
            "is an operator ready? Its log says what it waits for; it needs `create`, `get` and `update` of the Lease",
        )
    elif not found.is_renewed:
        yield Finding(
            Level.ERROR,
            f"the Lease {key} is stale: {found.holder} holds it and did not renew it while we looked",
            "another replica takes over by itself; if none does, its log says why",
        )
    if found.skew_s is not None and abs(found.skew_s) > CLOCKS_AGREE_S:
        yield Finding(
            Level.WARNING,
            f"the leading operator's clock is {_ahead(found.skew_s)} the API server's",
            "set the clock of its node by NTP",
        )


def pools(facts: Facts) -> Iterator[Finding]:
    """Whether there is anything to place models on, and its policy can be read."""
    for pool in facts.pools:
        if pool.error:
            yield Finding(
                Level.ERROR,
                f"the policy of pool {names.claim_key(pool.namespace, pool.name)} is ignored: {pool.error}",
                f"mend the annotation {names.POOL_POLICY_ANNOTATION} of the Deployment",
            )
    if not facts.pool_pods and not any("warm Pods" in text for text in facts.unseen):
        yield Finding(
            Level.ERROR,
            f"there is no warm pool: no Pod has the label {names.POOL_LABEL}",
            "apply one: examples/warm-pool.yaml",
        )
    for bad, text, remedy in (
        (lambda pod: not pod.is_enabled, "that take no claims", f"label them {names.ENABLED_LABEL}=true"),
        (lambda pod: not pod.gpus, "that ask for no GPU", f"give them limits of {names.GPU_RESOURCE}"),
        (
            lambda pod: not pod.has_sidecar,
            "without a sidecar",
            f"run `aibrix-operator runtime` in them, with containerPort {names.RUNTIME_PORT}",
        ),
    ):
        yield from _of_pods(Level.WARNING, filter(bad, facts.pool_pods), text, remedy)


def runtimes(facts: Facts) -> Iterator[Finding]:
    """Whether the sidecars can be read, and only by us."""
    asked = [pod for pod in facts.pool_pods if pod.has_sidecar and pod.runtime is not Runtime.NOT_ASKED]
    silent = [pod for pod in asked if pod.runtime is Runtime.SILENT]
    if asked and len(silent) == len(asked):
        yield Finding(
            Level.NOTE,
            f"none of {len(asked)} sidecars can be reached from here",
            "run this in the operator's Pod: a NetworkPolicy, or a network of Pods alone, keeps others out",
        )
    else:
        remedy = "see the container's log; an operator that cannot read a card leaves it alone"
        yield from _of_pods(Level.ERROR, silent, "whose sidecar does not answer", remedy)
    yield from _of_pods(
        Level.ERROR,
        (pod for pod in asked if pod.runtime is Runtime.REFUSED),
        "whose sidecar asks for another token",
        "AIBRIX_RUNTIME_TOKEN_FILE there and --runtime-token-file here must name copies of one Secret",
    )
    for pod in asked:
        if pod.runtime is Runtime.UNREADABLE:
            yield Finding(
                Level.ERROR,
                f"the sidecar of {names.claim_key(pod.namespace, pod.name)} cannot be understood: {pod.message}",
                "run one version of operator and sidecar",
            )
    read = [pod for pod in asked if pod.runtime is Runtime.READ]
    yield from _of_pods(
        Level.WARNING,
        (pod for pod in read if pod.is_open),
        "whose sidecar asks for no token",
        "whoever reaches its port may stop engines: set AIBRIX_RUNTIME_TOKEN_FILE, as examples/warm-pool.yaml does",
    )
    yield from _of_pods(
        Level.ERROR,
        (pod for pod in read if not pod.has_cards),
        "whose sidecar cannot measure its cards",
        "it needs NVML: is the NVIDIA runtime class or device plugin there? Nothing is placed on such a Pod",
    )
    for pod in read:
        if pod.skew_s is not None and abs(pod.skew_s) > CLOCKS_AGREE_S:
            where = names.claim_key(pod.namespace, pod.name)
            yield Finding(
                Level.WARNING, f"the clock of {where} is {_ahead(pod.skew_s)} ours", "set its node's clock by NTP"
            )


def unseen(facts: Facts) -> Iterator[Finding]:
    """What nobody could look at."""
    for text in facts.unseen:
        yield Finding(Level.NOTE, text, "run this as somebody who may, or in the operator's Pod")


CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    definitions,
    permissions,
    components,
    lease,
    pools,
    runtimes,
    unseen,
)


def _of_pods(level: Level, pods: Iterable[PoolPod], text: str, remedy: str) -> Iterator[Finding]:
    """One finding for all of them."""
    found = [names.claim_key(pod.namespace, pod.name) for pod in pods]
    if found:
        yield Finding(level, f"warm Pods {text}: {_some(found)}", remedy)


def _some(texts: list[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _ahead(skew_s: float) -> str:
    return f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'}"
