"""The one console script. Commands import what they run, so that a sidecar does not pay for an operator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="aibrix-operator",
    help="Let many language models share few GPUs on Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
sandbox_app = typer.Typer(
    name="sandbox",
    help="A real control plane, simulated cards and the operator on this machine, without root.",
    no_args_is_help=True,
)
app.add_typer(sandbox_app)

Name = Annotated[str, typer.Argument(help="Name of the sandbox; several can be up side by side.")]


@app.command()
def operator(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Cluster to work on; by default the one this process runs in.", exists=True)
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Work on this namespace only; by default on all.")] = None,
    runtime_token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token that the runtime sidecars ask for.", exists=True)
    ] = None,
    liveness: Annotated[
        str | None, typer.Option(help="Serve liveness here, for example http://0.0.0.0:8081/healthz.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Place ModelClaims on warm pods and divide each card's KV memory between the engines on it.

    Runs until SIGTERM, which ends it between two steps.
    """
    import os

    import uvloop

    from aibrix_operator.modelclaim import operator as operator_process

    _log_to_stderr(log_level)
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)  # where kopf's own login looks
    settings = operator_process.Settings(kubeconfig, namespace, runtime_token_file, liveness)
    uvloop.run(operator_process.serve(settings))


@app.command()
def runtime() -> None:
    """Run the sidecar of a warm pod: it starts engines, watches over them and sets their KV limits.

    All settings come from the environment; docs/runtime.md lists them. SIGTERM ends the sidecar and leaves its engines
    running, and the next sidecar takes them over.
    """
    from aibrix_operator.runtime.app import serve
    from aibrix_operator.runtime.settings import RuntimeSettings

    serve(RuntimeSettings())


@sandbox_app.command("up")
def sandbox_up(
    name: Name = "demo",
    card: Annotated[
        list[str] | None,
        typer.Option(help="One per card: h20, h100-80g, or a usable size such as 24Gi. Default: one h20."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes to spread the cards over; default: one per kind.")] = None,
    with_operator: Annotated[
        bool, typer.Option("--operator/--no-operator", help="Without, run one yourself against the kubeconfig.")
    ] = True,
) -> None:
    """Start a sandbox and wait until its warm pool is ready."""
    from rich.console import Console

    from aibrix_operator.sandbox import display, up

    console = Console()
    options = up.Options(cards=tuple(card or ("h20",)), nodes=nodes, with_operator=with_operator)
    with _errors_as_text():
        display.show_next_steps(up.up(name, options, report=lambda line: console.print(f"[dim]{line}[/dim]")), console)


@sandbox_app.command("down")
def sandbox_down(name: Name = "demo") -> None:
    """End every process of a sandbox and remove its folder, also after a crash."""
    from aibrix_operator.sandbox import up

    with _errors_as_text():
        up.down(name)


@sandbox_app.command("status")
def sandbox_status(name: Name = "demo") -> None:
    """Show a sandbox's processes and pods."""
    from rich.console import Console

    from aibrix_operator.sandbox import display, up

    with _errors_as_text():
        display.show_status(up.status(name), Console())


@sandbox_app.command("binaries")
def sandbox_binaries() -> None:
    """Find the control plane's programs: KUBEBUILDER_ASSETS, PATH, user cache; else unpack or build them."""
    from aibrix_operator.sandbox import binaries

    with _errors_as_text():
        for name, path in binaries.find_binaries(report=typer.echo).items():
            typer.echo(f"{name}  {path}")


@sandbox_app.command("demo")
def sandbox_demo() -> None:
    """Two claims share a card, a third is told why not, and the first gets its room back. Takes a minute."""
    from rich.console import Console

    from aibrix_operator.sandbox import demo

    with _errors_as_text():
        raise typer.Exit(demo.run(Console()))


@sandbox_app.command("demo-vllm")
def sandbox_demo_vllm() -> None:
    """The same with two real vLLM processes on the CPU and tiny models made on the spot. Downloads 8 GB once."""
    from rich.console import Console

    from aibrix_operator.sandbox.real_engine import demo

    with _errors_as_text():
        raise typer.Exit(demo.run(Console()))


class _errors_as_text:  # reads as the verb that it is
    """Ends the command with an error's own sentence instead of a traceback, for errors that a user can act on."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from aibrix_operator.sandbox.building import BuildError
        from aibrix_operator.sandbox.control_plane import ControlPlaneError
        from aibrix_operator.sandbox.state import SandboxError

        if isinstance(error, BuildError | ControlPlaneError | SandboxError):
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None


def _log_to_stderr(level: str) -> None:
    """One line per record; kopf's story of its own inner life only when it warns, or at DEBUG."""
    import logging

    names = logging.getLevelNamesMapping()
    if level.upper() not in names:
        raise typer.BadParameter(f"{level!r} is no log level; use DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(
        level=names[level.upper()], stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if names[level.upper()] > logging.DEBUG:
        logging.getLogger("kopf").setLevel(max(logging.WARNING, names[level.upper()]))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
