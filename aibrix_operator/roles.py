"""The chart's RBAC rules, out of the table of grants. ``make manifests`` writes them, ``make verify`` compares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from aibrix_operator.cluster.grant import Grant

CLUSTER_SCOPED: Final = frozenset(
    {
        ("", "namespaces"),
        ("", "nodes"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("storage.k8s.io", "storageclasses"),
    }
)
"""Kinds without a namespace, of those that grants may name: an operator of one namespace goes without them."""


class Where(StrEnum):
    """Which kind of role a rule belongs into."""

    OWN = "own"
    """A Role in the component's own namespace, whatever it works on."""
    WORK = "work"
    """A ClusterRole, or a Role in the one namespace that is worked on."""
    CLUSTER = "cluster"
    """A ClusterRole, of kinds without a namespace."""
    LISTED = "listed"
    """A Role in each namespace that the values list, for the names that they list, and nowhere else: Secrets."""


def where(grant: Grant) -> Where:
    """The place of ``grant``; no other is wider than it needs."""
    if (grant.group, grant.resource) in CLUSTER_SCOPED:
        return Where.CLUSTER
    if grant.namespaced_only:
        return Where.OWN
    return Where.LISTED if (grant.group, grant.resource) == ("", "secrets") else Where.WORK


def rules(grants: Mapping[str, Iterable[Grant]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Component → place → RBAC rules, in the table's order. Places without a rule are left out.

    What is given only for a choice in the values has the choice's name for a place; none of it is about kinds without
    a namespace.
    """
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for component, its in grants.items():
        places = found[component] = {}
        for grant in _merged(its):
            places.setdefault(grant.option or where(grant).value, []).append(_rule(grant))
    return found


def given(grants: Iterable[Grant], options: Collection[str] = ()) -> tuple[Grant, ...]:
    """Those that a component has where the values choose ``options``; by default they choose none."""
    return tuple(grant for grant in grants if not grant.option or grant.option in options)


def counts(grants: Mapping[str, Iterable[Grant]]) -> str:
    """How much is granted, and how much more each choice in the values adds, as one sentence."""
    every = {component: tuple(its) for component, its in grants.items()}
    default = ", ".join(f"{component} {count(given(its))}" for component, its in every.items())
    options = sorted({grant.option for its in every.values() for grant in its if grant.option})
    adds = ", ".join(
        f"{option} {sum(count(given(its, (option,))) - count(given(its)) for its in every.values())}"
        for option in options
    )
    return f"pairs of verb and resource by default: {default}" + (f"; more with {adds}" if adds else "")


def count(grants: Iterable[Grant]) -> int:
    """How many pairs of verb and resource are granted."""
    pairs = {(grant.group, grant.resource, verb) for grant in grants for verb in grant.verbs}
    return len(pairs)


def _merged(grants: Iterable[Grant]) -> list[Grant]:
    """One grant for each resource, place, choice of names and option: several controllers may need the same one."""
    verbs: dict[tuple[str, str, tuple[str, ...], bool, str], dict[str, None]] = {}
    for grant in grants:
        key = (grant.group, grant.resource, grant.names, grant.namespaced_only, grant.option)
        verbs.setdefault(key, {}).update(dict.fromkeys(grant.verbs))
    return [
        Grant(group, resource, tuple(own), names, only, option)
        for (group, resource, names, only, option), own in verbs.items()
    ]


def _rule(grant: Grant) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [grant.group], "resources": [grant.resource]}
    if grant.names:
        rule["resourceNames"] = list(grant.names)
    return rule | {"verbs": sorted(grant.verbs)}
