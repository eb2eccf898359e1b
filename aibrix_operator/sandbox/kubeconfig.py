"""Write kubeconfig files: who is spoken to, and as whom."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import yaml

from aibrix_operator.sandbox import certificates
from aibrix_operator.sandbox.certificates import KeyPair


def write_kubeconfig(path: Path, *, server: str, authority: bytes, user: str, identity: KeyPair | str) -> Path:
    """A kubeconfig with one context. ``identity`` is a client certificate or a bearer token."""
    credentials: Mapping[str, str]
    if isinstance(identity, str):
        credentials = {"token": identity}
    else:
        credentials = {
            "client-certificate-data": _base64(identity.certificate),
            "client-key-data": _base64(identity.key),
        }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "sandbox", "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}
        ],
        "users": [{"name": user, "user": dict(credentials)}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user, "namespace": "default"}}],
        "current-context": "sandbox",
    }
    certificates.write_secret(path, yaml.safe_dump(document, sort_keys=False).encode())
    return path


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
