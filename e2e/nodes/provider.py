"""Where the nodes come from: ``kind`` where Docker runs, else this machine's kernel, else nowhere, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from e2e.nodes import kind, local


class Cluster(Protocol):
    """A running cluster of real nodes."""

    @property
    def kubeconfig(self) -> Path:
        """An administrator's, with a bearer token."""
        ...

    @property
    def nodes(self) -> Sequence[str]:
        """Names of the nodes that Pods run on."""
        ...

    @property
    def node_address(self) -> str:
        """Where this machine reaches NodePorts."""
        ...

    @property
    def audit_log(self) -> Path | None:
        """What ServiceAccounts asked of the API server, one line a request; None where nobody writes it down."""
        ...

    def load(self, image: Path) -> None:
        """Give an image archive to every node."""
        ...

    def stop(self) -> None:
        """End everything and leave nothing."""
        ...


class NoNodesError(RuntimeError):
    """Neither provider can start here; the text says what each of them lacks."""


def start(names: Sequence[str]) -> Cluster:
    """A cluster with a node of each name, all Ready. The calling thread must live as long as it."""
    without_kind = kind.why_not()
    if without_kind is None:
        return kind.start(names)
    without_local = local.why_not()
    if without_local is None:
        return local.start(names)
    raise NoNodesError(f"{without_kind}; {without_local}")
