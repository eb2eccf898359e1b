"""Cluster DNS for local nodes: CoreDNS on this machine's end of the wire, behind the Service that kubelets name."""

from __future__ import annotations

from pathlib import Path

from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.processes import ProcessId
from e2e.api import ApiServer
from e2e.nodes.network import Addresses

_PORT = 53


def start_dns(folder: Path, program: Path, plane: ControlPlane, addresses: Addresses, api: ApiServer) -> ProcessId:
    """Start it and make its Service. The kernel ends it when the calling thread ends."""
    corefile = folder / "Corefile"
    corefile.write_text(
        f".:{_PORT} {{\n bind {addresses.host}\n errors\n"
        f" kubernetes cluster.local {{\n  kubeconfig {plane.kubeconfig}\n  ttl 1\n }}\n}}\n"
    )
    log = folder / "logs/coredns.log"
    pid = processes.start([str(program), "-conf", str(corefile)], log=log, dies_with_parent=True)
    process = processes.identify(pid)
    if process is None:
        raise RuntimeError(f"CoreDNS ended at once: {log.read_text(errors='replace').strip()}")
    ports = [
        {"name": name, "port": 53, "protocol": protocol} for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))
    ]
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    api.create(
        "/api/v1/namespaces/kube-system/services",
        {"metadata": metadata, "spec": {"clusterIP": addresses.dns_service, "ports": ports}},
    )
    api.create(
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
        {
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [addresses.host], "conditions": {"ready": True}}],
            "ports": ports,
        },
    )
    return process
