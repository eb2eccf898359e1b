"""A cluster of real nodes on this machine without Docker: namespaces, containerd, kubelet, kube-proxy, CoreDNS.

Needs root and the programs of ``packages.sh``. Whatever was started ends with the thread that started it, and what the
kernel does not clean up then (a folder, empty control groups) is removed by the next start.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.sandbox import binaries, control_plane, processes, rights_audit, tools
from aibrix_operator.sandbox.building import BuildError
from aibrix_operator.sandbox.control_plane import ControlPlane, Network
from aibrix_operator.sandbox.processes import ProcessId
from e2e.api import ApiServer, eventually
from e2e.nodes import dns, network, node, tools_image
from e2e.nodes.network import Addresses, Hub
from e2e.nodes.node import Cgroups, LocalNode

_PROGRAMS = ("containerd", "ctr", "runc", "iptables", "ip", "conntrack", "unshare", "nsenter", "busybox")
_READY_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster; its methods are those of every provider (``provider.Cluster``)."""

    folder: Path
    plane: ControlPlane
    addresses: Addresses
    hub: Hub
    local_nodes: Sequence[LocalNode]
    dns: ProcessId
    cgroups: Cgroups

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    @property
    def nodes(self) -> Sequence[str]:
        return [each.name for each in self.local_nodes]

    @property
    def node_address(self) -> str:
        """Where this machine reaches NodePorts."""
        return self.local_nodes[0].address

    @property
    def audit_log(self) -> Path | None:
        return self.folder / control_plane.AUDIT_LOG

    def load(self, image: Path) -> None:
        """Give an image archive to every node."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda each: each.load(image), self.local_nodes))

    def stop(self) -> None:
        """End everything and leave nothing. Nodes are switched off, not shut down."""
        for each in self.local_nodes:
            each.stop()
        processes.end(self.dns, 0)
        self.plane.stop()
        processes.end(self.hub.process, 0)
        self.cgroups.remove()
        rights_audit.keep(self.folder, "nodes")
        shutil.rmtree(self.folder)


def why_not() -> str | None:
    """What is missing for a local cluster; None when nothing is."""
    if os.geteuid() != 0:
        return "local nodes need root"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if not any((Path(folder) / "ptp").exists() for folder in node.CNI_FOLDERS):
        missing.append("CNI plugins")
    if missing:
        return f"local nodes lack {', '.join(missing)}: see e2e/nodes/packages.sh"
    return None


def start(names: Sequence[str]) -> LocalCluster:
    """Start a cluster of these nodes and wait until they are Ready. The calling thread must live as long as it."""
    remove_leftovers()
    # Short, because a socket's path may not be longer than 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-", dir="/tmp"))
    cgroups = Cgroups(folder.name)
    started: list[ProcessId] = []
    try:
        programs = binaries.find_binaries((*binaries.CONTROL_PLANE, "kubelet", "kube-proxy"), report=print)
        coredns = tools.find_tool(tools.COREDNS, report=print)
        addresses = network.choose()
        hub = network.open_hub(addresses, folder / "hub.log")
        started.append(hub.process)
        reach = Network(addresses.host, addresses.services)
        plane = control_plane.start_control_plane(
            folder,
            programs,
            with_controllers=True,
            dies_with_parent=True,
            network=reach,
            audit_policy=rights_audit.policy(()),
        )
        nodes: list[LocalNode] = []
        for index, name in enumerate(names):
            made = node.start_node(name, index, len(names), folder / name, hub, plane, programs, cgroups.name)
            nodes.append(made)
            started += [made.outer, made.first]
        hub.route_services()
        api = ApiServer(plane.kubeconfig)
        server = dns.start_dns(folder, coredns, plane, addresses, api)
        started.append(server)
        cluster = LocalCluster(folder, plane, addresses, hub, nodes, server, cgroups)
        tools_image.write(folder / "tools.tar")
        cluster.load(folder / "tools.tar")
        _wait_ready(api, names, folder)
        api.close()
    except BaseException:
        for process in reversed(started):
            processes.end(process, 0)
        control_plane.stop_control_plane(folder)
        cgroups.remove()
        raise
    return cluster


def remove_leftovers() -> None:
    """Folders and control groups of runs whose process is gone. Their processes, mounts and wires ended with it."""
    for folder in Path("/tmp").glob(f"{_prefix()}*"):
        owner = re.fullmatch(rf"{_prefix()}(\d+)-\w+", folder.name)
        if owner and processes.identify(int(owner[1])) is None:
            Cgroups(folder.name).remove()
            shutil.rmtree(folder)


def _prefix() -> str:
    return "aibrix-e2e-"


def _wait_ready(api: ApiServer, names: Sequence[str], folder: Path) -> None:
    def ready() -> bool:
        rows = {row["metadata"]["name"]: row for row in api.get("/api/v1/nodes")["items"]}
        conditions = [rows.get(name, {}).get("status", {}).get("conditions", []) for name in names]
        return all({"Ready": "True"}.items() <= {c["type"]: c["status"] for c in row}.items() for row in conditions)

    try:
        eventually(f"{', '.join(names)} Ready", ready, _READY_WITHIN_S)
    except AssertionError as error:
        logs = "\n".join(
            f"{log}: {line}"
            for log in folder.glob("*/*.log")
            for line in log.read_text(errors="replace").splitlines()[-5:]
        )
        raise node.NodeError(f"{error}\n{logs}") from error


__all__ = ["BuildError", "LocalCluster", "remove_leftovers", "start", "why_not"]
