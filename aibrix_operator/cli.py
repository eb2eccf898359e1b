"""The one console script. Commands import what they run, so that a sidecar does not pay for an operator."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aibrix_operator import __version__, log_output, rollouts
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.doctor import command as doctor_command
from aibrix_operator.gateway import command as gateway_command
from aibrix_operator.sandbox import command as sandbox_command

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="aibrix-operator",
    help="Let many language models share few GPUs on Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(sandbox_command.app)
app.add_typer(rollouts.app)
explain_app = typer.Typer(
    name="explain",
    help="Say why something is as it is, with the operator's own figures. Changes nothing.",
    no_args_is_help=True,
)
app.add_typer(explain_app)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def all_commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """What stands before every command; ``--version`` ends in its callback."""


class Output(StrEnum):
    """How a report is printed."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs.")]
LookedAt = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Cluster to look at; by default KUBECONFIG's, ~/.kube/config's, or the one this process runs in.",
        exists=True,
        dir_okay=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--runtime-token-file",
        help="File with the bearer token that the runtime sidecars ask for.",
        exists=True,
        dir_okay=False,
    ),
]
ServedProbes = Annotated[
    str | None,
    typer.Option(help="Serve liveness here, for example http://0.0.0.0:8081/healthz, and readiness at /readyz."),
]
ServedPage = Annotated[
    str | None,
    typer.Option(help="Serve the read-only web page here, for example http://127.0.0.1:8090 for this machine alone."),
]


@app.command()
def operator(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Cluster to work on; by default the one this process runs in.", exists=True)
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Work on this namespace only; by default on all.")] = None,
    runtime_token_file: TokenFile = None,
    liveness: ServedProbes = None,
    page: ServedPage = None,
    enable_runtime_sidecar: Annotated[
        bool,
        typer.Option(
            "--enable-runtime-sidecar",
            help="Load ModelAdapters through the runtime sidecar of Pods that have one; it fetches the artifact.",
        ),
    ] = False,
    adapter_scheduler: Annotated[
        Policy, typer.Option(help="Which Pods get a ModelAdapter that is wanted on some of them only.")
    ] = Policy.LEAST_ADAPTERS,
    lease_namespace: Annotated[
        str | None, typer.Option(help="Namespace of the Lease; by default the Pod's own, else --namespace's.")
    ] = None,
    lease_name: Annotated[
        str, typer.Option(help="One replica of all that share this Lease leads. Other work needs another Lease.")
    ] = "aibrix-operator",
    lease_duration: Annotated[
        int, typer.Option(help="Seconds after which another replica leads when the leader says nothing.")
    ] = 3,
    lease_renew: Annotated[
        float, typer.Option(help="Seconds between two renewals by the leader: at most a third of the duration.")
    ] = 1.0,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run the controllers of all kinds: models come onto warm pods, and cards are divided between their engines.

    Of several replicas one works, and another takes over in seconds when it does not. Runs until SIGTERM, which ends
    it between two steps.
    """
    import uvloop

    from aibrix_operator.cluster.lease import LeaseSettings
    from aibrix_operator.operator import process as operator_process
    from aibrix_operator.operator.kinds import AdapterSettings
    from aibrix_operator.page import beside

    log_output.to_stderr(log_level)
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)  # where kopf's own login looks
    try:
        where = lease_namespace or operator_process.own_namespace() or namespace or "default"
        lease = LeaseSettings(where, lease_name, lease_duration, lease_renew)
        served = beside.pages(page, namespace)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    adapters = AdapterSettings(adapter_scheduler, enable_runtime_sidecar)
    settings = operator_process.Settings(lease, kubeconfig, namespace, runtime_token_file, liveness, adapters)
    uvloop.run(operator_process.serve(settings, served))


app.command()(gateway_command.gateway)
app.command()(doctor_command.doctor)


@app.command()
def fetch(
    url: Annotated[str, typer.Argument(help="huggingface://, s3://, gcs://, https:// or a folder.")],
    folder: Annotated[Path, typer.Argument(help="Where its files come to. One folder holds one artifact.")],
    credentials: Annotated[
        Path | None,
        typer.Option(help="A folder with one file a key, such as huggingface_token.", exists=True, file_okay=False),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="File for a last word in JSON: bytes, reason, message.")] = None,
) -> None:
    """Fetch a model's files into a folder, going on where an earlier fetch was cut.

    Ends with status 42 where another try cannot help: a wrong address, credentials that do not open it, a disk that
    cannot hold it. ModelWarmups run this on nodes.
    """
    import asyncio

    from aibrix_operator.modelwarmup import fetching

    status, said = asyncio.run(fetching.fetch(url, folder, credentials, report))
    typer.echo(said, err=status != fetching.DONE_STATUS)
    raise typer.Exit(status)


@app.command()
def runtime() -> None:
    """Run the sidecar of a warm pod: it starts engines, watches over them and sets their KV limits.

    All settings come from the environment; docs/runtime.md lists them. SIGTERM ends the sidecar and leaves its engines
    running, and the next sidecar takes them over.
    """
    from aibrix_operator.runtime.app import serve
    from aibrix_operator.runtime.settings import RuntimeSettings

    serve(RuntimeSettings())


@explain_app.command("claim")
def explain_claim(
    name: Annotated[str, typer.Argument(help="Name of the ModelClaim.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    kubeconfig: LookedAt = None,
    runtime_token_file: TokenFile = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say where a claim is, or why it waits, who is on each card, and who would have to go.

    It reads claims and pods from the API server, and a snapshot from each pod's runtime.

    All figures are there only where pods can be reached: in the cluster, or in a sandbox.
    From elsewhere it shows what statuses record.

    Exit code 1 when there is no such claim, or no cluster to ask.
    """
    import asyncio

    from aibrix_operator.explain import claim_report, claim_text, looking

    with _errors_as_text():
        report = asyncio.run(looking.explain(kubeconfig, _token(runtime_token_file), namespace, name))
        if output is Output.JSON:
            _print_json(claim_report.to_json(report))
        else:
            _console().print(claim_text.render(report))


@app.command()
def plan(
    filename: Annotated[
        list[str],
        typer.Option("--filename", "-f", help="YAML or JSON with ModelClaims, a folder of such, or - for stdin."),
    ],
    cards: Annotated[
        list[str],
        typer.Option(
            "--cards",
            help="[POOL=][PODSx][GPUSx]KIND, given as often as needed: 8xH20, 2x2xH20 (two pods of two GPUs each), "
            "1x24Gi (usable size), big=2xH100-80G (a pool, which claims must then select).",
        ),
    ],
    output: OutputOption = Output.TEXT,
) -> None:
    """Say what claims would come to on cards before anything is applied. Needs no cluster.

    It shows who sits where and under which KV limit, and says why the others do not fit.

    Claims are placed in the order of their documents, as the operator places the oldest first.
    Cards are empty before, and all engines are idle.

    Exit code 0 when all fit, 1 when a claim does not, 2 when files or cards cannot be used.
    """
    from aibrix_operator.explain import declared, files, plan_text, planning, racks

    try:
        pods = racks.parse_pods(cards)
        found = declared.read_claims(files.read_sources(filename))
    except (racks.UnknownCards, declared.UnusableFiles) as error:
        for line in str(error).splitlines():
            typer.echo(f"error: {line}", err=True)
        raise typer.Exit(2) from None
    played = planning.play(found.claims, pods)
    if output is Output.JSON:
        _print_json(planning.to_json(played))
    else:
        _console().print(plan_text.render(played, found.skipped))
    raise typer.Exit(0 if played.fits else 1)


@app.command()
def top(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Look at this namespace only; by default at all.")
    ] = None,
    kubeconfig: LookedAt = None,
    runtime_token_file: TokenFile = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    svg: Annotated[
        Path | None, typer.Option(help="With --once: write the frame into this file as a picture, too.", dir_okay=False)
    ] = None,
) -> None:
    """Watch cards as bars of footprints, mapped KV and limits, with their engines, and who waits.

    Runs until Ctrl-C. Like explain it has all figures only where pods can be reached.
    """
    import asyncio
    import contextlib

    from aibrix_operator.explain import live
    from aibrix_operator.explain.svg import picture_of

    token = _token(runtime_token_file)
    if svg is not None and not once:
        raise typer.BadParameter("a picture is of one frame: use it with --once", param_hint="--svg")
    console = _console(record=svg is not None)
    if not once and not console.is_terminal:
        raise typer.BadParameter("the output is no terminal: use --once")
    with _errors_as_text():
        if once:
            console.print(asyncio.run(live.look_once(kubeconfig, token, namespace)))
            if svg is not None:
                svg.write_text(picture_of(console, "aibrix-operator top"))
            return
        with contextlib.suppress(KeyboardInterrupt):  # how it is meant to end
            asyncio.run(live.show(kubeconfig, token, namespace, console, interval))


@app.command()
def simulate(
    seeds: Annotated[int, typer.Option(min=1, help="How many schedules to play.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="Seed of the first of them.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Play this one schedule and tell its story.")] = None,
    faults: Annotated[
        str | None, typer.Option(help="Only these, separated by commas. By default each seed draws its own choice.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="With --seed: only these of its actions, by number and separated by commas.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to play in.")] = 1,
    output: OutputOption = Output.TEXT,
) -> None:
    """Play random schedules of faults against the real controllers, in virtual time, and check the ledger's laws.

    Each seed is 20 minutes of users, load and faults, and then a calm in which everything has to settle.
    The laws are checked after every step. A seed plays the same way every time, bit for bit.
    Seeds from 1,000,000 on play in a pool that is too small for its claims, where sleepers wait, move and give up.

    A failure is cut down to the actions that matter, with the command that replays it.

    Faults are

    calls: lost-call, late-call, repeated-call, silent-runtime;

    API server: refused-write, late-write, stale-watch, lost-events;

    operator: restarted-operator, killed-operator, two-leaders, held-calls, clock-jump;

    pods and engines: killed-pod, unready-pod, unlabelled-pod, reused-ip, killed-runtime, killed-engine, failed-engine;

    cards: ignored-limit, unmeasured-card, full-card;

    other hands: slept-by-hand, request-taken-back, wiped-status, forged-status, forged-record, wiped-routes,
    forged-routes, reset-policy, wrong-policy, recreated-claim.

    Exit code 1 when a seed fails, 2 when an option cannot be used.
    """
    from aibrix_operator.sim import command
    from aibrix_operator.sim.schedule import UnknownFaults

    chosen = None if faults is None else tuple(name for name in faults.split(",") if name)
    try:
        if only is not None and seed is None:
            raise typer.BadParameter("needs --seed", param_hint="--only")
        if seed is not None:
            is_good = command.run_one(seed, chosen, _numbers(only), _console())
        else:
            span = range(first, first + seeds)
            is_good = command.run_many(span, chosen, jobs, _console(), as_json=output is Output.JSON)
    except UnknownFaults as error:
        raise typer.BadParameter(str(error), param_hint="--faults") from None
    raise typer.Exit(0 if is_good else 1)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    """Numbers of actions; ``none`` is none of them."""
    if text is None:
        return None
    try:
        return () if text == "none" else tuple(int(number) for number in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint="--only") from None


class _errors_as_text:  # reads as the verb that it is
    """Ends the command with an error's own sentence instead of a traceback, for errors that a user can act on."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from aibrix_operator.explain.looking import CannotLook

        if isinstance(error, CannotLook):
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None


def _console(*, record: bool = False) -> Console:
    """Standard output; where it is no terminal, wide enough for what is drawn."""
    from rich.console import Console

    console = Console(record=record, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 100
    return console


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _token(file: Path | None) -> str | None:
    return None if file is None else file.read_text().strip()


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
