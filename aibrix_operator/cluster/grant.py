"""What a component may ask of the API server: declared beside its code, and the chart's roles are made of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grant:
    """One rule of RBAC, without wildcards."""

    group: str
    """"" is the core group."""
    resource: str
    """Lower-case plural, with the subresource where it is one: ``modelclaims/status``."""
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Only objects of these names; empty: all. RBAC can limit neither ``create`` nor ``list`` so."""
    namespaced_only: bool = False
    """In the component's own namespace only, whatever it works on: a Role even where all else is a ClusterRole."""
    option: str = ""
    """The choice in the chart's values without which it is not given; empty: always."""

    def __post_init__(self) -> None:
        assert "*" not in (self.group, self.resource, *self.verbs), f"{self} is no least right"
        assert self.verbs, f"{self} grants nothing"


READ = ("list", "watch")
"""What a list-and-watch needs."""
