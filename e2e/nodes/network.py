"""The wires between this machine and its local nodes.

A bridge in a network namespace of its own joins the nodes; this machine has one end of a wire into it, and routes to
the nodes' Pods and to the Services. All of it goes with the process that holds that namespace.
"""

from __future__ import annotations

import ipaddress
import os
import random
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.processes import ProcessId

_SECOND_OCTETS = range(160, 250)
_WITHIN_S = 10.0


class NetworkError(RuntimeError):
    """A wire could not be laid; the text is what ``ip`` said."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """All addresses of one cluster, from one ``/16`` that this machine uses for nothing else."""

    second_octet: int

    @property
    def whole(self) -> str:
        return f"10.{self.second_octet}.0.0/16"

    @property
    def host(self) -> str:
        """This machine's: where API server and DNS listen."""
        return f"10.{self.second_octet}.0.1"

    @property
    def services(self) -> str:
        return f"10.{self.second_octet}.128.0/17"

    @property
    def dns_service(self) -> str:
        return f"10.{self.second_octet}.128.10"

    @property
    def pods(self) -> str:
        return f"10.{self.second_octet}.64.0/18"

    def node(self, index: int) -> str:
        return f"10.{self.second_octet}.0.{10 + index}"

    def pods_of(self, index: int) -> str:
        """The range of one node's Pods, within ``pods``."""
        return f"10.{self.second_octet}.{64 + index}.0/24"


def choose() -> Addresses:
    """A ``/16`` that no route of this machine touches, at random so that two runs differ."""
    lines = _run("ip", "-4", "route").splitlines()
    taken = [ipaddress.ip_network(word, strict=False) for word in (line.split()[0] for line in lines) if "." in word]
    for octet in random.sample(_SECOND_OCTETS, len(_SECOND_OCTETS)):
        addresses = Addresses(octet)
        if not any(ipaddress.ip_network(addresses.whole).overlaps(other) for other in taken):
            return addresses
    raise NetworkError(f"every range from 10.{_SECOND_OCTETS.start} to 10.{_SECOND_OCTETS.stop - 1} is in use here")


@dataclass(frozen=True, slots=True)
class Hub:
    """The bridge, while :attr:`process` lives."""

    process: ProcessId
    addresses: Addresses
    wire: str
    """Name of this machine's end."""

    def join(self, node: int, index: int) -> None:
        """Lay a wire from process ``node``'s network namespace (its ``eth0``) to the bridge."""
        self._inside("ip", "link", "add", f"n{index}", "type", "veth", "peer", "name", "eth0", "netns", str(node))
        self._inside("ip", "link", "set", f"n{index}", "master", "hub", "up")
        _run("ip", "route", "add", self.addresses.pods_of(index), "via", self.addresses.node(index), "dev", self.wire)

    def route_services(self) -> None:
        """This machine reaches Services through the first node, whose kube-proxy knows them."""
        _run("ip", "route", "add", self.addresses.services, "via", self.addresses.node(0), "dev", self.wire)

    def _inside(self, *command: str) -> None:
        _run("nsenter", "--target", str(self.process.pid), "--net", *command)


def open_hub(addresses: Addresses, log: Path) -> Hub:
    """Make the bridge and this machine's wire into it. The kernel removes both when the calling thread ends."""
    pid = processes.start(["unshare", "--net", "sleep", "infinity"], log=log, dies_with_parent=True)
    process = processes.identify(pid)
    if process is None:
        raise NetworkError(f"no network namespace: {log.read_text(errors='replace').strip()}")
    hub = Hub(process, addresses, f"aibrix{addresses.second_octet}")
    try:
        wait_unshared(pid)
        _run("ip", "link", "add", hub.wire, "type", "veth", "peer", "name", "host", "netns", str(pid))
        _run("ip", "address", "add", f"{addresses.host}/24", "dev", hub.wire)
        _run("ip", "link", "set", hub.wire, "up")
        hub._inside("ip", "link", "add", "hub", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        hub._inside("ip", "link", "set", "hub", "up")
        hub._inside("ip", "link", "set", "host", "master", "hub", "up")
    except BaseException:
        processes.end(process, 0)
        raise
    return hub


def inside_node(addresses: Addresses, index: int, nodes: int) -> list[Sequence[str]]:
    """What node ``index`` of ``nodes`` does about its own end of the wire."""
    commands: list[Sequence[str]] = [
        ("ip", "link", "set", "lo", "up"),
        ("ip", "address", "add", f"{addresses.node(index)}/24", "dev", "eth0"),
        ("ip", "link", "set", "eth0", "up"),
        ("ip", "route", "add", "default", "via", addresses.host),
    ]
    others = (other for other in range(nodes) if other != index)
    commands += [("ip", "route", "add", addresses.pods_of(other), "via", addresses.node(other)) for other in others]
    return commands


def wait_unshared(pid: int) -> None:
    """Until the process has left our network namespace, so that no wire ends in the wrong one."""
    deadline = time.monotonic() + _WITHIN_S
    while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        if time.monotonic() > deadline:
            raise NetworkError(f"process {pid} did not get a network namespace within {_WITHIN_S:.0f} s")
        time.sleep(0.01)  # the kernel offers no event for it


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
