"""Start, stop and describe whole sandboxes. What the command line calls; plain functions, no terminal.

A sandbox is a control plane, nodes with simulated cards, an agent that plays their kubelets, a warm pool, the operator,
and gateways. Every process of it is a daemon of its own session that the sandbox's process table names.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import DEPLOYMENTS, PODS, Object
from aibrix_operator.sandbox import (
    binaries,
    connection,
    control_plane,
    crds,
    fleet,
    gateways,
    operators,
    pod_folder,
    pod_status,
    pool,
    processes,
    readiness,
    rights,
    rights_audit,
    state,
)
from aibrix_operator.sandbox.binaries import Report
from aibrix_operator.sandbox.gateways import GatewayAddress
from aibrix_operator.sandbox.operators import OperatorAddress
from aibrix_operator.sandbox.state import Sandbox, SandboxError

DEFAULT_NAME = "demo"
AGENT = "agent"
RUNTIME_COMMAND = (sys.executable, "-m", "aibrix_operator.cli", "runtime")
_STOP_GRACE_S = 12.0  # above the supervisor's own grace for its child
_POD_GRACE_S = 3.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a sandbox consists of."""

    cards: Sequence[str] = ("h20",)
    """One kind a card: a preset of :mod:`aibrix_operator.sim.card`, or a usable size such as ``24Gi``."""
    nodes: int | None = None
    """None: one node a kind of card."""
    operators: int = 1
    """Replicas of the operator. 0: run one yourself against the kubeconfig, in a debugger for example."""
    gateways: int = 0
    """Replicas of the gateway, each with an Envoy of its own."""
    gateway_options: Sequence[Sequence[str]] = ()
    """Further options of their commands: those of the first replica, of the second, … None for those that are left."""
    with_pool: bool = True
    """Without, apply a warm pool of your own."""
    runtime_command: Sequence[str] = RUNTIME_COMMAND
    """Starts a warm Pod's sidecar; ``{address}`` becomes the Pod's address, where it must serve port 8080."""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process of a sandbox, for display."""

    name: str
    pid: int
    is_alive: bool
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PodRow:
    """One Pod of a sandbox, for display."""

    namespace: str
    name: str
    node: str
    address: str
    phase: str
    is_ready: bool
    processes: int
    """The sidecar's and its engines'; 0 for a Pod that is no warm Pod."""


@dataclass(frozen=True, slots=True)
class Status:
    """A sandbox as it is. ``pods`` is None when the API server does not answer."""

    sandbox: Sandbox
    processes: Sequence[ProcessRow]
    pods: Sequence[PodRow] | None
    gateways: Sequence[GatewayAddress] = ()
    operators: Sequence[OperatorAddress] = ()


def up(name: str = DEFAULT_NAME, options: Options = Options(), report: Report = lambda _: None) -> Sandbox:
    """Start a sandbox and wait until its pool is ready. What a crashed one of the same name left is removed first.

    SandboxError, BuildError, ControlPlaneError or ValueError (the cards) when it cannot; nothing is left running then.
    """
    try:
        nodes = fleet.plan_nodes(options.cards, options.nodes)
    except ValueError as error:
        raise SandboxError(str(error)) from error
    if options.gateways:
        gateways.check_envoy()
    programs = binaries.find_binaries(report=report)
    before = state.load(name)
    if before is not None:
        if _is_whole(before):
            raise SandboxError(f"sandbox {name!r} is up already: export KUBECONFIG={before.kubeconfig}")
        report(f"removing what a crashed sandbox {name!r} left")
        down(name)
    sandbox = state.create(name, nodes, options.runtime_command)
    with state.hold(sandbox.directory):
        try:
            report("starting etcd, API server, controller manager and scheduler")
            plane = control_plane.start_control_plane(
                sandbox.directory,
                programs,
                with_controllers=True,
                dies_with_parent=False,
                audit_policy=rights.audit_policy() if rights_audit.folder() is not None else "",
            )
            rights.write_kubeconfigs(plane)
            _start_supervised(
                sandbox, AGENT, [sys.executable, "-m", "aibrix_operator.sandbox.agent", str(sandbox.directory)]
            )
            asyncio.run(_furnish(sandbox, options, report))
        except errors.ClusterError as error:
            _tear_down(sandbox)
            raise SandboxError(f"the API server refused what a sandbox needs: {error}") from error
        except BaseException:
            _tear_down(sandbox)
            raise
    return sandbox


def down(name: str = DEFAULT_NAME) -> None:
    """End every process of the sandbox and remove its folder, whether it runs or has crashed.

    SandboxError when there is none of that name, or another command is at work on it.
    """
    sandbox = state.load(name)
    if sandbox is None:
        known = ", ".join(other.name for other in state.list_sandboxes()) or "none"
        raise SandboxError(f"there is no sandbox {name!r} (known: {known})")
    with state.hold(sandbox.directory):
        _tear_down(sandbox)


def find(name: str = DEFAULT_NAME) -> Sandbox:
    """The sandbox, running or crashed. SandboxError when there is none of that name."""
    sandbox = state.load(name)
    if sandbox is None:
        raise SandboxError(f"there is no sandbox {name!r}; start it with: aibrix-operator sandbox up {name}")
    return sandbox


def status(name: str = DEFAULT_NAME) -> Status:
    """The sandbox's processes and Pods. SandboxError when there is none of that name."""
    sandbox = find(name)
    rows = [
        ProcessRow(process_name, process.pid, processes.is_alive(process), processes.session_memory_bytes(process))
        for process_name, process in sandbox.table.read().items()
    ]
    return Status(
        sandbox,
        rows,
        asyncio.run(_pod_rows(sandbox)),
        gateways.list_gateways(sandbox),
        operators.list_operators(sandbox),
    )


def _is_whole(sandbox: Sandbox) -> bool:
    """Whether every process that was started still runs."""
    table = sandbox.table.read()
    return {*control_plane.STOP_ORDER, AGENT} <= table.keys() and all(map(processes.is_alive, table.values()))


def _start_supervised(sandbox: Sandbox, name: str, command: Sequence[str]) -> None:
    pid = processes.start(
        [sys.executable, "-m", "aibrix_operator.sandbox.supervisor", *command],
        log=sandbox.logs / f"{name}.log",
        environment=connection.environment(),
        dies_with_parent=False,
    )
    sandbox.table.add(name, pid)


def _start_operators(sandbox: Sandbox, replicas: int) -> list[readiness.Wait]:
    waits = []
    for address, command in operators.plan(sandbox, replicas):
        _start_supervised(sandbox, address.name, command)
        waits.append(readiness.operator(sandbox, address.name, f"{address.url}/readyz"))
    return waits


def _start_gateways(sandbox: Sandbox, options: Options) -> list[readiness.Wait]:
    waits = []
    own = iter(options.gateway_options)
    for address, command in gateways.plan(sandbox, options.gateways):
        further = next(own, ())
        _start_supervised(sandbox, address.name, [*command, *further])
        waits.append(readiness.gateway(sandbox, address.name, f"{address.api_url}/readyz"))
    return waits


async def _furnish(sandbox: Sandbox, options: Options, report: Report) -> None:
    """Everything that needs the API server, until all of it is ready."""
    async with await connection.connect(sandbox.kubeconfig) as cluster:
        report("applying the custom resource definitions")
        await crds.apply_crds(cluster)
        await rights.grant(cluster)
        waits: list[readiness.Wait] = []
        if options.operators:
            report("starting the operator")
            waits += _start_operators(sandbox, options.operators)
        if options.gateways:
            report(f"starting {options.gateways} gateway{'s' if options.gateways > 1 else ''}")
            waits += _start_gateways(sandbox, options)
        if options.with_pool:
            replicas = sum(node.cards for node in sandbox.nodes)
            report(f"starting {replicas} warm Pod{'s' if replicas > 1 else ''}")
            await cluster.create(DEPLOYMENTS, pool.NAMESPACE, pool.deployment(replicas))
            waits.append(readiness.warm_pool(sandbox, cluster, replicas, AGENT))
        await readiness.wait_ready(waits)


def _tear_down(sandbox: Sandbox) -> None:
    """End clients before servers: gateways, the operator, the agent, what the agent ran, the control plane."""
    table = sandbox.table.read()
    clients = [
        name for kind in (gateways.GATEWAY, operators.OPERATOR) for name in table if name.partition("-")[0] == kind
    ]
    for name in (*clients, AGENT):
        if name in table:
            processes.end(table[name], _STOP_GRACE_S)
            sandbox.table.remove(name)
    with ThreadPoolExecutor() as side_by_side:
        # A list, so that what one of them raises is raised here.
        list(side_by_side.map(lambda folder: folder.end_processes(_POD_GRACE_S), pod_folder.list_folders(sandbox.pods)))
    control_plane.stop_control_plane(sandbox.directory)
    rights_audit.keep(sandbox.directory, sandbox.name)
    state.remove(sandbox)


async def _pod_rows(sandbox: Sandbox) -> list[PodRow] | None:
    if not sandbox.kubeconfig.exists():  # `up` has only begun
        return None
    async with await connection.connect(sandbox.kubeconfig) as cluster:
        try:
            pods, _ = await cluster.list_all(PODS)
        except errors.Unavailable:
            return None
    return [_pod_row(sandbox, pod) for pod in pods]


def _pod_row(sandbox: Sandbox, pod: Object) -> PodRow:
    metadata, observed = pod["metadata"], pod.get("status", {})
    return PodRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=pod_status.node_of(pod),
        address=observed.get("podIP", ""),
        phase="Terminating" if pod_status.is_deleted(pod) else observed.get("phase", "Pending"),
        is_ready=pod_status.is_ready(pod),
        processes=len(pod_folder.PodFolder(sandbox.pods / metadata["uid"]).processes()),
    )
