"""``aibrix-operator doctor``: the options, and what is printed. What looks is imported when it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    from aibrix_operator.doctor.checks import Finding

MOUNTED_TOKEN: Final = Path("/var/run/secrets/aibrix/runtime-token/token")
"""Where the chart mounts it."""


def doctor(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Look at warm Pods of this namespace only; by default all.")
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Cluster to look at; by default the one this process runs in, else kubectl's.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    runtime_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the sidecars' bearer token; in the operator's Pod by default the one that it has.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    lease_name: Annotated[str, typer.Option(help="The operators' Lease.")] = "aibrix-operator",
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="text for people, json for programs.")
    ] = "text",
) -> None:
    """Name what is missing or wrong in a cluster, and what to do about it. Changes nothing.

    It looks at definitions, rights, the operators' Lease, operator and gateway Pods, warm pools and their sidecars.

    In the operator's Pod it asks with the operator's own rights and reaches the sidecars; from elsewhere it asks about
    the release's accounts, which needs the right to do so.

    Exit code 1 when something is wrong that keeps models from being served, or there is no cluster to ask.
    """
    import asyncio

    from aibrix_operator.doctor import checks, looking
    from aibrix_operator.explain.looking import CannotLook
    from aibrix_operator.operator.process import own_namespace

    inside = own_namespace() if kubeconfig is None else None
    token_file = runtime_token_file or (MOUNTED_TOKEN if MOUNTED_TOKEN.is_file() else None)
    token = token_file.read_text().strip() if token_file is not None else None
    scope = looking.Scope(namespace, inside, lease_name)
    try:
        facts = asyncio.run(looking.examine(kubeconfig, token, scope))
    except CannotLook as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    found = checks.examine(facts)
    typer.echo(json.dumps([asdict(each) for each in found], indent=2) if output == "json" else text(found))
    raise typer.Exit(1 if any(each.level is checks.Level.ERROR for each in found) else 0)


def text(findings: Sequence[Finding]) -> str:
    """Two lines a finding, and how many there are."""
    lines = [line for each in findings for line in (f"{each.level}: {each.text}", f"  → {each.remedy}")]
    total = "nothing is wrong" if not findings else f"{len(findings)} finding{'s' if len(findings) > 1 else ''}"
    return "\n".join([*lines, total])
