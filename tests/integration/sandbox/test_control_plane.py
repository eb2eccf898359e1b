"""The control plane by itself: who may speak to it, and that nothing of it stays."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path

import pytest
from kubernetes.aio import client

from aibrix_operator.sandbox import binaries, control_plane, processes
from aibrix_operator.sandbox.process_table import ProcessTable

pytestmark = pytest.mark.integration


async def test_a_user_of_a_client_certificate_has_the_rights_that_rbac_gives_its_groups(api_server, namespace):
    account = f"system:serviceaccount:{namespace}:operator"
    kubeconfig = api_server.plane.kubeconfig_for(account, ["system:serviceaccounts"])
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    async with api_server.client() as admin:
        rbac = client.RbacAuthorizationV1Api(admin)
        await rbac.create_namespaced_role(namespace, {"metadata": {"name": "reader"}, "rules": [rule]})
        await rbac.create_namespaced_role_binding(
            namespace,
            {
                "metadata": {"name": "reader"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
                "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
            },
        )
    async with api_server.client(kubeconfig) as operator:
        core = client.CoreV1Api(operator)
        assert (await core.list_namespaced_config_map(namespace)).items == []
        with pytest.raises(client.ApiException) as refused:
            await core.list_namespaced_secret(namespace)
    assert refused.value.status == 403


def test_only_the_api_server_may_read_the_store(api_server):
    keys = api_server.plane.directory / "keys"
    pid = ProcessTable(api_server.plane.directory).read()[binaries.ETCD].pid
    flags = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    store = next(flag.partition("=")[2] for flag in flags if flag.startswith("--advertise-client-urls="))

    def ask(certificate: str | None) -> int:
        trust = ssl.create_default_context(cafile=keys / "etcd-ca.crt")
        if certificate:
            trust.load_cert_chain(keys / f"{certificate}.crt", keys / f"{certificate}.key")
        with urllib.request.urlopen(f"{store}/version", context=trust, timeout=5) as answer:
            return answer.status

    assert ask("etcd-client") == 200
    for stranger in (None, "ca", "api-server"):
        # TLS 1.3 refuses a client after its own handshake is over; which of these is seen then is a matter of timing.
        with pytest.raises(OSError, match=r"(?i)alert|reset|closed|EOF"):
            ask(stranger)


def test_stopping_ends_every_process_also_a_second_time(tmp_path):
    programs = binaries.find_binaries()
    plane = control_plane.start_control_plane(tmp_path, programs, with_controllers=True, dies_with_parent=True)
    started = ProcessTable(tmp_path).read()
    assert set(started) == set(control_plane.STOP_ORDER)

    plane.stop()
    plane.stop()

    assert not any(processes.is_alive(process) for process in started.values())
    assert ProcessTable(tmp_path).read() == {}


def test_a_program_that_refuses_its_flags_is_named_with_its_last_words(tmp_path):
    programs = dict(binaries.find_binaries())
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho 'no such flag' >&2\nexit 3\n")
    broken.chmod(0o755)
    programs[binaries.API_SERVER] = broken
    with pytest.raises(control_plane.ControlPlaneError, match=r"kube-apiserver ended while starting; .*\nno such flag"):
        control_plane.start_control_plane(tmp_path, programs, with_controllers=False, dies_with_parent=True)
    assert ProcessTable(tmp_path).read() == {}
