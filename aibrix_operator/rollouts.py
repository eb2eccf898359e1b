"""``aibrix-operator rollout``: status, history, undo, pause and resume of StormServices, as kubectl has them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from aibrix_operator.cluster.client import Cluster
    from aibrix_operator.stormservice.seen import Revision, StormService

app = typer.Typer(
    name="rollout", help="See and steer the updates of StormServices, in kubectl's words.", no_args_is_help=True
)

POLL_S = 1.0
NameArgument = Annotated[str, typer.Argument(help="Name of the StormService.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Cluster to work on; by default KUBECONFIG's, ~/.kube/config's, or the one this process runs in.",
        exists=True,
        dir_okay=False,
    ),
]


@app.command()
def status(
    name: NameArgument,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", "-w", help="Wait until the update is over.")] = True,
    timeout: Annotated[float, typer.Option(min=0, help="Give up after so many seconds; 0: never.")] = 0.0,
) -> None:
    """Say how far an update is, until it is over.

    Exit code 1 when the update missed its progress deadline, or was not over in time.
    """
    _run(_follow(kubeconfig, namespace, name, watch=watch, timeout_s=timeout or None))


@app.command()
def history(
    name: NameArgument,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    revision: Annotated[int, typer.Option(min=0, help="Show the template of this revision.")] = 0,
) -> None:
    """List the revisions that are kept, oldest first, or show one."""
    _run(_show_history(kubeconfig, namespace, name, revision))


@app.command()
def undo(
    name: NameArgument,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    to_revision: Annotated[int, typer.Option(min=0, help="Go back to this revision; 0: the one before.")] = 0,
) -> None:
    """Put the template of an earlier revision back; the operator rolls it out like any other."""
    _run(_undo(kubeconfig, namespace, name, to_revision))


@app.command()
def pause(name: NameArgument, namespace: NamespaceOption = "default", kubeconfig: KubeconfigOption = None) -> None:
    """Stop an update where it is. Scaling still works, and keeps the shares of old and new."""
    _run(_pause(kubeconfig, namespace, name, is_to_pause=True))


@app.command()
def resume(name: NameArgument, namespace: NamespaceOption = "default", kubeconfig: KubeconfigOption = None) -> None:
    """Let a paused update go on."""
    _run(_pause(kubeconfig, namespace, name, is_to_pause=False))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Errors are one line on stderr and exit code 1."""
    from aibrix_operator.cluster import errors
    from aibrix_operator.explain.looking import CannotLook
    from aibrix_operator.stormservice.rollout_words import CannotRoll

    try:
        asyncio.run(work)
    except (CannotRoll, CannotLook, errors.ClusterError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@contextlib.asynccontextmanager
async def _connected(kubeconfig: Path | None) -> AsyncIterator[Cluster]:
    from aibrix_operator.explain import looking

    async with looking.connect_cluster(kubeconfig) as cluster:
        yield cluster


async def _read(cluster: Cluster, namespace: str, name: str) -> StormService:
    from aibrix_operator.stormservice.resources import STORMSERVICES
    from aibrix_operator.stormservice.seen import StormService

    return StormService(await cluster.get(STORMSERVICES, namespace, name))


async def _revisions(cluster: Cluster, storm: StormService) -> list[Revision]:
    from aibrix_operator.stormservice.resources import REVISIONS
    from aibrix_operator.stormservice.revisions import NAME_LABEL
    from aibrix_operator.stormservice.seen import Revision

    found, _ = await cluster.list_all(REVISIONS, storm.namespace, label_selector=f"{NAME_LABEL}={storm.name}")
    # Other controllers use the same label.
    return [revision for revision in map(Revision, found) if revision.is_controlled_by(storm.uid)]


async def _follow(kubeconfig: Path | None, namespace: str, name: str, *, watch: bool, timeout_s: float | None) -> None:
    from aibrix_operator.stormservice import rollout_words

    said = ""
    async with _connected(kubeconfig) as cluster:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    now = rollout_words.progress((await _read(cluster, namespace, name)).body)
                    if now.has_failed:
                        raise rollout_words.CannotRoll(now.message.removeprefix("error: "))
                    if now.message != said:
                        said = now.message
                        typer.echo(said)
                    if now.is_done or not watch:
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise rollout_words.CannotRoll("timed out waiting for the condition") from None


async def _show_history(kubeconfig: Path | None, namespace: str, name: str, number: int) -> None:
    import yaml

    from aibrix_operator.stormservice import rollout_words

    async with _connected(kubeconfig) as cluster:
        storm = await _read(cluster, namespace, name)
        revisions = await _revisions(cluster, storm)
    if number:
        found = rollout_words.numbered(revisions, number)
        typer.echo(yaml.safe_dump({"revision": number, "name": found.name, "template": dict(found.template)}), nl=False)
        return
    entries = rollout_words.history(storm, revisions)
    names = max((len(entry.name) for entry in entries), default=4)
    typer.echo(f"{'REVISION':<10}{'NAME':<{names + 2}}{'STATE':<9}IMAGES")
    for entry in entries:
        typer.echo(f"{entry.number:<10}{entry.name:<{names + 2}}{entry.mark:<9}{entry.images}")


async def _undo(kubeconfig: Path | None, namespace: str, name: str, number: int) -> None:
    from aibrix_operator.stormservice import rollout_words
    from aibrix_operator.stormservice.resources import STORMSERVICES

    async with _connected(kubeconfig) as cluster:
        storm = await _read(cluster, namespace, name)
        body, said = rollout_words.undone(storm, await _revisions(cluster, storm), number)
        if body is not None:
            await cluster.replace(STORMSERVICES, namespace, name, body)
    typer.echo(said)


async def _pause(kubeconfig: Path | None, namespace: str, name: str, *, is_to_pause: bool) -> None:
    from aibrix_operator.stormservice import rollout_words
    from aibrix_operator.stormservice.resources import STORMSERVICES

    async with _connected(kubeconfig) as cluster:
        change, said = rollout_words.paused(await _read(cluster, namespace, name), is_to_pause)
        await cluster.patch(STORMSERVICES, namespace, name, change)
    typer.echo(said)
