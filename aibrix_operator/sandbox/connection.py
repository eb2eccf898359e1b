"""Connections to a sandbox's API server: on loopback, so no proxy that the environment names is ever asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from aibrix_operator.cluster.client import Cluster

_NO_PROXY = ("NO_PROXY", "no_proxy")  # programs differ in which of the two they prefer


async def api_client(kubeconfig: Path) -> kubernetes_client.ApiClient:
    """The client library's own kind of connection, for calls that :class:`Cluster` does not have."""
    configuration = kubernetes_client.Configuration()
    configuration.client_session_kwargs = {"trust_env": False}
    await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]  # the loader carries no annotations
        config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
    )
    return kubernetes_client.ApiClient(configuration)


async def connect(kubeconfig: Path) -> Cluster:
    """As ``Cluster.connect``, without a proxy."""
    return Cluster(await api_client(kubeconfig))


def environment() -> Mapping[str, str]:
    """Our environment for a process that speaks to the sandbox: loopback joins what no proxy is used for."""
    exempt = [part for name in _NO_PROXY for part in os.environ.get(name, "").split(",") if part]
    joined = ",".join(dict.fromkeys([*exempt, "127.0.0.1", "localhost"]))
    return {**os.environ, **dict.fromkeys(_NO_PROXY, joined), "PYTHONUNBUFFERED": "1"}
