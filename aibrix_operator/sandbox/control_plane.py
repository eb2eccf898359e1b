"""A real Kubernetes control plane on loopback ports: etcd, API server, controller manager, scheduler.

Used by ``up`` (daemons that outlive it) and by tests (children that the kernel kills with the test). Everything lies in
one folder, and nothing is written outside it. The data is disposable: etcd does not wait for the disk.
"""

from __future__ import annotations

import ipaddress
import random
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aibrix_operator.sandbox import certificates, processes
from aibrix_operator.sandbox.binaries import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER, Binaries
from aibrix_operator.sandbox.certificates import Authority
from aibrix_operator.sandbox.kubeconfig import write_kubeconfig
from aibrix_operator.sandbox.process_table import ProcessTable

STOP_ORDER = (SCHEDULER, CONTROLLER_MANAGER, API_SERVER, ETCD)
"""Clients first: an API server with open watches takes up to a minute to end, and one without etcd hangs."""
ADMIN = "sandbox-admin"
AUDIT_LOG = "audit.log"
_READY_WITHIN_S = 60.0
_GRACE_S = 5.0
# Below the kernel's range for outgoing connections (32768 on), so that none of those takes a port between our test of
# it and the server's bind; above 20000-20999, which runtimes hand out to engines.
_PORTS = range(21000, 30000)
_START_ATTEMPTS = 3


class ControlPlaneError(RuntimeError):
    """The control plane did not come up; the text names the program and quotes the end of its log."""


class _PortTakenError(ControlPlaneError):
    """Another process bound a port between our test of it and the server's bind. A new start takes other ports."""


class _Identity(NamedTuple):
    user: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Where the API server listens, and what Services get their addresses from."""

    address: str = "127.0.0.1"
    """Real nodes and their Pods must reach it; loopback serves processes of this machine alone."""
    services: str = "10.96.0.0/16"

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def first_service_address(self) -> str:
        """Of the Service ``kubernetes``."""
        return str(ipaddress.ip_network(self.services)[1])


LOOPBACK = Network()


# At its usual 20 calls a second the controller manager needs 6 s until its last controller has started.
_UNTHROTTLED = ("--kube-api-qps=1000", "--kube-api-burst=2000")
_CONTROLLER_MANAGER = _Identity("system:kube-controller-manager", ())
_SCHEDULER = _Identity("system:kube-scheduler", ())


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane."""

    directory: Path
    url: str
    token: str
    """Bearer token of an administrator (group ``system:masters``)."""
    kubeconfig: Path
    """The same administrator's kubeconfig."""
    authority: Authority

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for ``user`` in ``groups``, by client certificate. RBAC decides what it may do.

        A ServiceAccount's user is ``system:serviceaccount:<namespace>:<name>``.
        """
        path = kubeconfig_path(self.directory, user)
        path.parent.mkdir(exist_ok=True)
        return write_kubeconfig(
            path,
            server=self.url,
            authority=self.authority.certificate,
            user=user,
            identity=self.authority.client(user, groups),
        )

    def stop(self) -> None:
        """End the processes, clients first. Files stay."""
        stop_control_plane(self.directory)


def kubeconfig_path(directory: Path, user: str) -> Path:
    """Where ``kubeconfig_for`` writes that of ``user``."""
    return directory / "kubeconfigs" / f"{user.replace(':', '-').replace('/', '-')}.yaml"


def start_control_plane(
    directory: Path,
    binaries: Binaries,
    *,
    with_controllers: bool,
    dies_with_parent: bool,
    network: Network = LOOPBACK,
    audit_policy: str = "",
) -> ControlPlane:
    """Start and wait until the API server says it is ready. ``directory`` exists; what it holds of ours is replaced.

    Without controllers there is an API server alone: no namespace is ever emptied, no owner's child collected, and
    Pods need no ServiceAccount. With ``audit_policy`` the API server writes ``AUDIT_LOG`` in the folder. Raises
    :class:`ControlPlaneError`, having ended what it started.
    """
    for attempt in range(1, _START_ATTEMPTS + 1):
        start = _Start(directory, binaries, with_controllers, dies_with_parent, network, audit_policy)
        try:
            return start.run()
        except _PortTakenError:
            stop_control_plane(directory)
            if attempt == _START_ATTEMPTS:
                raise
        except BaseException:
            stop_control_plane(directory)
            raise
    raise AssertionError("the last attempt returned or raised")


def stop_control_plane(directory: Path) -> None:
    """End the control plane's processes that the table in ``directory`` names. Repeatable, also after a crash."""
    table = ProcessTable(directory)
    running = table.read()
    for name in STOP_ORDER:
        if name in running:
            processes.end(running[name], _GRACE_S)
            table.remove(name)


class _Start:
    """One attempt: its ports, its keys, its command lines."""

    def __init__(
        self,
        directory: Path,
        binaries: Binaries,
        with_controllers: bool,
        dies_with_parent: bool,
        network: Network,
        audit_policy: str,
    ) -> None:
        self._directory = directory
        self._network = network
        self._binaries = binaries
        self._with_controllers = with_controllers
        self._dies_with_parent = dies_with_parent
        self._audit_policy = audit_policy
        self._table = ProcessTable(directory)
        self._keys = directory / "keys"
        self._logs = directory / "logs"
        for folder in (self._keys, self._logs):
            folder.mkdir(exist_ok=True, mode=0o700)
        self._authority = Authority("sandbox")
        self._token = secrets.token_urlsafe(24)
        api, self._etcd_clients, self._etcd_peers = free_ports(3)
        self._url = f"https://{network.address}:{api}"
        self._api_port = api

    def run(self) -> ControlPlane:
        self._write_keys()
        self._launch(ETCD, self._etcd_flags())
        self._launch(API_SERVER, self._api_server_flags())
        kubeconfig = write_kubeconfig(
            self._directory / "kubeconfig",
            server=self._url,
            authority=self._authority.certificate,
            user=ADMIN,
            identity=self._token,
        )
        plane = ControlPlane(self._directory, self._url, self._token, kubeconfig, self._authority)
        self._wait_ready()
        if self._with_controllers:
            self._launch(CONTROLLER_MANAGER, self._controller_manager_flags(plane))
            self._launch(SCHEDULER, self._scheduler_flags(plane))
        return plane

    def _launch(self, name: str, flags: Sequence[str]) -> None:
        log = self._logs / f"{name}.log"
        log.unlink(missing_ok=True)  # an earlier attempt's last words must not be taken for this one's
        pid = processes.start([str(self._binaries[name]), *flags], log=log, dies_with_parent=self._dies_with_parent)
        try:
            self._table.add(name, pid)
        except ProcessLookupError as error:
            processes.reap(pid)
            raise self._failure(name) from error

    def _write_keys(self) -> None:
        self._authority.pair().write(self._keys / "ca")
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        addresses = {"127.0.0.1", self._network.address, self._network.first_service_address}
        self._authority.server(names, sorted(addresses)).write(self._keys / "api-server")
        # Kubelets let in whom this authority names, and the API server's webhook says that an administrator may.
        self._authority.client("kube-apiserver", ("system:masters",)).write(self._keys / "kubelet-client")
        # An authority of its own: who may speak to the API server must not thereby read its store.
        etcd = Authority("sandbox-etcd")
        (self._keys / "etcd-ca.crt").write_bytes(etcd.certificate)
        etcd.server(["localhost"], ["127.0.0.1"]).write(self._keys / "etcd")
        etcd.client("kube-apiserver").write(self._keys / "etcd-client")
        certificates.write_secret(self._keys / "service-accounts.key", certificates.signing_key())
        certificates.write_secret(
            self._keys / "tokens.csv", f'{self._token},{ADMIN},{ADMIN},"system:masters"\n'.encode()
        )

    def _etcd_flags(self) -> list[str]:
        clients, peers = (f"https://127.0.0.1:{port}" for port in (self._etcd_clients, self._etcd_peers))
        keys = self._keys
        flags = [
            f"--data-dir={self._directory / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ]
        for prefix in ("--", "--peer-"):
            flags += [
                f"{prefix}cert-file={keys / 'etcd.crt'}",
                f"{prefix}key-file={keys / 'etcd.key'}",
                f"{prefix}trusted-ca-file={keys / 'etcd-ca.crt'}",
                f"{prefix}client-cert-auth",
            ]
        return flags

    def _api_server_flags(self) -> list[str]:
        keys = self._keys
        flags = [
            f"--etcd-servers=https://127.0.0.1:{self._etcd_clients}",
            f"--etcd-cafile={keys / 'etcd-ca.crt'}",
            f"--etcd-certfile={keys / 'etcd-client.crt'}",
            f"--etcd-keyfile={keys / 'etcd-client.key'}",
            f"--bind-address={self._network.address}",
            f"--secure-port={self._api_port}",
            f"--advertise-address={self._network.address}",
            f"--cert-dir={keys}",
            f"--tls-cert-file={keys / 'api-server.crt'}",
            f"--tls-private-key-file={keys / 'api-server.key'}",
            f"--client-ca-file={keys / 'ca.crt'}",
            f"--token-auth-file={keys / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys / 'service-accounts.key'}",
            f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={self._network.services}",
            f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
            f"--kubelet-client-key={keys / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        ]
        if self._network.is_loopback:
            # No endpoints for the `kubernetes` Service: they may not be loopback addresses, and nobody here has others.
            flags.append("--endpoint-reconciler-type=none")
        if self._audit_policy:
            policy = keys / "audit-policy.yaml"
            policy.write_text(self._audit_policy)
            flags += [f"--audit-policy-file={policy}", f"--audit-log-path={self._directory / AUDIT_LOG}"]
        if not self._with_controllers:
            # The plugin refuses every Pod until the controller manager has made the namespace's `default` account.
            flags.append("--disable-admission-plugins=ServiceAccount")
        return flags

    def _controller_manager_flags(self, plane: ControlPlane) -> list[str]:
        keys = self._keys
        return [
            f"--kubeconfig={plane.kubeconfig_for(*_CONTROLLER_MANAGER)}",
            *_UNTHROTTLED,
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={keys / 'service-accounts.key'}",
            f"--root-ca-file={keys / 'ca.crt'}",
            f"--cluster-signing-cert-file={keys / 'ca.crt'}",
            f"--cluster-signing-key-file={keys / 'ca.key'}",
            "--profiling=false",
        ]

    def _scheduler_flags(self, plane: ControlPlane) -> list[str]:
        return [
            f"--kubeconfig={plane.kubeconfig_for(*_SCHEDULER)}",
            *_UNTHROTTLED,
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--profiling=false",
        ]

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN_S
        trust = ssl.create_default_context(cadata=self._authority.certificate.decode())
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        question = urllib.request.Request(f"{self._url}/readyz", headers={"Authorization": f"Bearer {self._token}"})
        while True:
            for name, process in self._table.read().items():
                if name in STOP_ORDER and not processes.is_alive(process):
                    raise self._failure(name)
            try:
                with opener.open(question, timeout=2):
                    return
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                if time.monotonic() > deadline:
                    raise ControlPlaneError(
                        f"the API server was not ready within {_READY_WITHIN_S:.0f} s ({error}); {self._last_words()}"
                    ) from error
            time.sleep(0.05)  # the API server offers no event for "ready"

    def _last_words(self, name: str = API_SERVER) -> str:
        lines = (self._logs / f"{name}.log").read_text(errors="replace").splitlines()
        return "its log ends:\n" + "\n".join(lines[-8:])

    def _failure(self, name: str) -> ControlPlaneError:
        words = self._last_words(name)
        kind = _PortTakenError if "address already in use" in words else ControlPlaneError
        return kind(f"{name} ended while starting; {words}")


def free_ports(count: int) -> list[int]:
    """Distinct ports that could be bound on 127.0.0.1 a moment ago, in random order so that parallel starts differ."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ControlPlaneError(f"fewer than {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def free_port() -> int:
    """One of ``free_ports``."""
    return free_ports(1)[0]
