"""``aibrix-operator sandbox``: what runs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="sandbox",
    help="A real control plane, simulated cards and the operator on this machine, without root.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Name of the sandbox; several can be up side by side.")]


@app.command("up")
def start(
    name: Name = "demo",
    card: Annotated[
        list[str] | None,
        typer.Option(help="One per card: h20, h100-80g, or a usable size such as 24Gi. Default: one h20."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes to spread the cards over; default: one per kind.")] = None,
    operators: Annotated[
        int, typer.Option(min=0, help="Replicas of the operator; with 0 run one yourself against the kubeconfig.")
    ] = 1,
    gateways: Annotated[int, typer.Option(min=0, help="Replicas of the gateway, each with its Envoy; 0 for none.")] = 1,
) -> None:
    """Start a sandbox and wait until its warm pool is ready."""
    from rich.console import Console

    from aibrix_operator.sandbox import display, up

    console = Console()
    options = up.Options(cards=tuple(card or ("h20",)), nodes=nodes, operators=operators, gateways=gateways)
    with _errors_as_text():
        display.show_next_steps(up.up(name, options, report=lambda line: console.print(f"[dim]{line}[/dim]")), console)


@app.command("down")
def stop(name: Name = "demo") -> None:
    """End every process of a sandbox and remove its folder, also after a crash."""
    from aibrix_operator.sandbox import up

    with _errors_as_text():
        up.down(name)


@app.command("status")
def status(name: Name = "demo") -> None:
    """Show a sandbox's processes and pods."""
    from rich.console import Console

    from aibrix_operator.sandbox import display, up

    with _errors_as_text():
        display.show_status(up.status(name), Console())


@app.command("env")
def show_environment(name: Name = "demo") -> None:
    """Print lines that tell a shell of cluster, gateway and page: eval "$(aibrix-operator sandbox env)"."""
    from aibrix_operator.sandbox import display, up

    with _errors_as_text():
        for line in display.environment(up.find(name)):
            typer.echo(line)


@app.command("binaries")
def show_binaries() -> None:
    """Find the control plane's programs: KUBEBUILDER_ASSETS, PATH, user cache; else unpack or build them."""
    from aibrix_operator.sandbox import binaries

    with _errors_as_text():
        for name, path in binaries.find_binaries(report=typer.echo).items():
            typer.echo(f"{name}  {path}")


@app.command("demo")
def play_demo() -> None:
    """Two claims share a card, a third is told why not, and the first gets its room back. Takes a minute."""
    from rich.console import Console

    from aibrix_operator.sandbox import demo

    with _errors_as_text():
        raise typer.Exit(demo.run(Console()))


@app.command("demo-vllm")
def play_demo_vllm() -> None:
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
