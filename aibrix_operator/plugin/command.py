"""The console script ``kubectl-aibrix``, which kubectl finds on PATH as ``kubectl aibrix``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from aibrix_operator import cli
from aibrix_operator.explain import looking
from aibrix_operator.plugin import waking

app = typer.Typer(
    name="kubectl aibrix",
    help="See which models share which GPUs, why a claim waits, and wake one that sleeps.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
explain_app = typer.Typer(help="Say why something is as it is, with the operator's own figures. Changes nothing.")
app.add_typer(explain_app, name="explain", no_args_is_help=True)
explain_app.command("claim")(cli.explain_claim)
app.command("plan")(cli.plan)
app.command("top")(cli.top)


@app.command()
def wake(
    name: Annotated[str, typer.Argument(help="Name of the ModelClaim.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    kubeconfig: cli.LookedAt = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it serves.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait at most.")] = 300.0,
) -> None:
    """Ask for a sleeping claim, as the gateway does when a request for it comes.

    The operator wakes it where its card has room, and says by the claim's conditions and Events why it cannot.
    A request is good for five minutes. Asking again changes nothing.

    Exit code 1 when there is no such claim or it has no engine, or with --wait when it does not serve in time.
    """
    try:
        told, is_good = asyncio.run(_wake(kubeconfig, namespace, name, timeout if wait else None))
    except looking.CannotLook as error:
        told, is_good = f"error: {error}", False
    typer.echo(told, err=not is_good)
    raise typer.Exit(0 if is_good else 1)


async def _wake(kubeconfig: Path | None, namespace: str, name: str, timeout_s: float | None) -> tuple[str, bool]:
    """What to say, and whether all is well."""
    async with looking.connect_cluster(kubeconfig) as cluster:
        state = await waking.ask(cluster, namespace, name, lambda: datetime.now(UTC))
        if not state.has_engine:
            return f"{name} has no card: kubectl aibrix explain claim {name} -n {namespace} says why", False
        lines = [
            f"{name} is asked for on {a.pod}" if a.is_new else f"{name} was asked for on {a.pod} at {a.since}"
            for a in state.asked
        ] or [f"{name} does not sleep"]
        if timeout_s is None:
            return "\n".join(lines), True
        if await waking.wait(cluster, namespace, name, timeout_s):
            return "\n".join([*lines, f"{name} serves"]), True
        hint = f"kubectl aibrix explain claim {name} -n {namespace} says more"
        return "\n".join([*lines, f"{name} does not serve after {timeout_s:g} s: {hint}"]), False


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
