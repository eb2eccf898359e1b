"""One local node: its folder, its configuration, its process tree."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.kubeconfig import write_kubeconfig
from aibrix_operator.sandbox.processes import ProcessId
from e2e.nodes import network
from e2e.nodes.network import Hub
from e2e.nodes.tools_image import TOOLS_IMAGE

CNI_FOLDERS = ("/opt/cni/bin", "/usr/lib/cni")
_WITHIN_S = 20.0


class NodeError(RuntimeError):
    """The node did not start, or refused an image; the text quotes who said so."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A running node."""

    name: str
    address: str
    folder: Path
    first: ProcessId
    """Process 1 in there: with it goes the node."""
    outer: ProcessId
    """The ``unshare`` that waits for it."""

    def load(self, archive: Path) -> None:
        """Import the images of a tar archive, of Docker's or OCI's layout."""
        command = ["ctr", "--address", str(_socket(self.folder)), "--namespace", "k8s.io", "images", "import"]
        done = subprocess.run([*command, str(archive)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NodeError(f"{self.name} did not import {archive}: {done.stderr.strip()}")

    def stop(self) -> None:
        processes.end(self.first, 0)
        processes.end(self.outer, 1)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where a cluster's containers are counted: one folder below each hierarchy, of the name given."""

    name: str

    def remove(self) -> None:
        """Remove the folders. Only empty ones can be removed, so a process that still runs keeps its own."""
        for root in [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]:
            top = root / self.name
            if top.is_dir():
                for folder in sorted(top.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                    _rmdir(folder)
                _rmdir(top)


def start_node(
    name: str,
    index: int,
    nodes: int,
    folder: Path,
    hub: Hub,
    plane: ControlPlane,
    programs: Mapping[str, Path],
    cgroup: str,
) -> LocalNode:
    """Start it and join it to ``hub``; returns before it is Ready. The kernel ends it when the calling thread ends."""
    for part in ("var/lib/containerd", "var/lib/kubelet", "var/lib/cni", "var/log/pods", "var/log/containers", "cni"):
        (folder / part).mkdir(parents=True)
    (folder / "var/run").symlink_to("/run")
    address = hub.addresses.node(index)
    files = _Files(name, folder, hub.addresses, index, plane, cgroup)
    files.write()
    settings = {
        "folder": str(folder),
        "socket": str(_socket(folder)),
        "network": network.inside_node(hub.addresses, index, nodes),
        "programs": [
            ["containerd", "--config", str(folder / "containerd.toml")],
            [
                str(programs["kubelet"]),
                f"--config={folder / 'kubelet.yaml'}",
                f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
                f"--node-ip={address}",
                f"--hostname-override={name}",
            ],
            [str(programs["kube-proxy"]), f"--config={folder / 'kube-proxy.yaml'}", f"--hostname-override={name}"],
        ],
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    unshare = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--mount-proc", "--fork", "--kill-child=KILL"]
    command = [*unshare, sys.executable, str(Path(__file__).with_name("node_init.py")), str(folder / "settings.json")]
    outer = processes.identify(processes.start(command, log=folder / "node.log", dies_with_parent=True))
    if outer is None:
        raise NodeError(f"unshare ended at once: {(folder / 'node.log').read_text(errors='replace').strip()}")
    first = _only_child(outer.pid, folder / "node.log")
    network.wait_unshared(first.pid)
    hub.join(first.pid, index)
    return LocalNode(name, address, folder, first, outer)


@dataclass(frozen=True, slots=True)
class _Files:
    name: str
    folder: Path
    addresses: network.Addresses
    index: int
    plane: ControlPlane
    cgroup: str

    def write(self) -> None:
        (self.folder / "resolv.conf").write_text("")  # Pods that want the node's own DNS find none
        (self.folder / "containerd.toml").write_text(self._containerd())
        (self.folder / "cni/10-pods.conflist").write_text(json.dumps(self._cni()))
        # YAML is JSON and more.
        (self.folder / "kubelet.yaml").write_text(json.dumps(self._kubelet()))
        (self.folder / "kube-proxy.yaml").write_text(json.dumps(self._proxy()))
        authority = self.plane.authority
        for program, identity in (
            ("kubelet", authority.client(f"system:node:{self.name}", ("system:nodes",))),
            ("kube-proxy", authority.client("system:kube-proxy")),
        ):
            write_kubeconfig(
                self.folder / f"{program}.kubeconfig",
                server=self.plane.url,
                authority=authority.certificate,
                user=program,
                identity=identity,
            )
        (self.folder / "ca.crt").write_bytes(authority.certificate)

    def _containerd(self) -> str:
        cni = next(folder for folder in CNI_FOLDERS if (Path(folder) / "ptp").exists())
        return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# The first makes a folder of its own in /opt, the others look for file systems that are not here.
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{_socket(self.folder)}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{TOOLS_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{self.folder / "cni"}"
"""

    def _cni(self) -> dict[str, object]:
        """A wire for each Pod, routed by the node: without a bridge, none of whose packets pass kube-proxy's rules."""
        ranges = [[{"subnet": self.addresses.pods_of(self.index)}]]
        ipam = {
            "type": "host-local",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/cni-addresses",
        }
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}]}

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{_socket(self.folder)}",
            "address": self.addresses.node(self.index),
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(self.folder / "ca.crt")}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.addresses.dns_service],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.folder / "resolv.conf"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "serializeImagePulls": False,
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            # A full disk of this machine is no matter of the tests.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
        }

    def _proxy(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.folder / "kube-proxy.kubeconfig")},
            "clusterCIDR": self.addresses.pods,
            "mode": "iptables",
            # These settings are the whole machine's.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }


def _socket(folder: Path) -> Path:
    return folder / "containerd.sock"


def _only_child(outer: int, log: Path) -> ProcessId:
    """The process that ``unshare`` starts, once it has become what it was told to."""
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        try:
            children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        except FileNotFoundError:
            break
        if children and (process := processes.identify(int(children[0]))):
            return process
        time.sleep(0.01)  # procfs offers no event for it
    raise NodeError(f"the node's namespaces were not made: {log.read_text(errors='replace').strip()}")


def _rmdir(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # in use, or a file that the kernel keeps there
