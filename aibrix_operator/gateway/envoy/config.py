"""Envoy's whole configuration, static: nothing in it changes while it runs, for the decision is asked of us."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import orjson

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.envoy import listener, routes
from aibrix_operator.gateway.envoy.settings import EnvoySettings, Tls

Json = dict[str, Any]

_TYPE: Final = "type.googleapis.com/envoy."
_SECRET_FILE: Final = Path("tls.json")
_MANY: Final = 1_000_000
"""Envoy's circuit breakers would turn the 1025th request that waits into an error; what limits us is ours to say."""


def bootstrap(settings: EnvoySettings, secret_file: Path = _SECRET_FILE) -> Json:
    """The document that Envoy is started with. With TLS it names ``secret_file``, where ``secret`` is to be."""
    return {
        "node": {"id": settings.node_id, "cluster": "aibrix-gateway"},
        "admin": {"address": listener.socket(settings.admin)},
        "static_resources": {"listeners": [listener.listener(settings, secret_file)], "clusters": clusters(settings)},
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": f"{_TYPE}extensions.resource_monitors.downstream_connections.v3."
                        "DownstreamConnectionsConfig",
                        "max_active_downstream_connections": settings.max_connections,
                    },
                }
            ]
        },
    }


def write_config(settings: EnvoySettings, path: Path) -> None:
    """Write it where Envoy finds it, whole or not at all: an Envoy in a container of its own waits for this file."""
    secret_file = path.with_name(_SECRET_FILE.name)
    if settings.tls is not None:
        _write(secret(settings.tls), secret_file)
    _write(bootstrap(settings, secret_file), path)


def _write(document: Json, path: Path) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    os.replace(partial, path)


def secret(tls: Tls) -> Json:
    """The document that tells Envoy of the certificate: only one of its own makes it look for a renewed one."""
    return {
        "resources": [
            {
                "@type": f"{_TYPE}extensions.transport_sockets.tls.v3.Secret",
                "name": listener.CERTIFICATE,
                "tls_certificate": {
                    "certificate_chain": {"filename": str(tls.certificate)},
                    "private_key": {"filename": str(tls.key)},
                    "watched_directory": {"path": str(tls.certificate.parent)},
                },
            }
        ]
    }


def clusters(settings: EnvoySettings) -> list[Json]:
    """Where Envoy connects to."""
    return [
        {
            "name": routes.ENGINES,
            "type": "ORIGINAL_DST",
            "lb_policy": "CLUSTER_PROVIDED",
            "connect_timeout": f"{settings.connect_timeout_s}s",
            "original_dst_lb_config": {"use_http_header": True, "http_header_name": headers.TARGET},
            "circuit_breakers": _breakers(),
            # A node that vanished says nothing: without probes its streams would last for the whole timeout.
            "upstream_connection_options": {
                "tcp_keepalive": {"keepalive_time": 30, "keepalive_interval": 10, "keepalive_probes": 3}
            },
            "typed_extension_protocol_options": _http({"http_protocol_options": {}}, idle_s=settings.engine_idle_s),
        },
        _own(listener.QUESTIONS, settings.questions, {"http_protocol_options": {}}),
        _own(listener.REPORTS, settings.reports, {"http2_protocol_options": {}}),
        _own(routes.OWN_API, settings.api, {"http_protocol_options": {}}, idle_s=settings.engine_idle_s),
    ]


def _own(name: str, address: Address, protocol: Json, *, idle_s: float | None = None) -> Json:
    """A server of ours."""
    endpoint = {"endpoint": {"address": listener.socket(address)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        "circuit_breakers": _breakers(),
        "typed_extension_protocol_options": _http(protocol, idle_s=idle_s),
    }


def _http(protocol: Json, *, idle_s: float | None) -> Json:
    name = "extensions.upstreams.http.v3.HttpProtocolOptions"
    options: Json = {"@type": _TYPE + name, "explicit_http_config": protocol}
    if idle_s is not None:
        options["common_http_protocol_options"] = {"idle_timeout": f"{idle_s}s"}
    return {f"envoy.{name}": options}


def _breakers() -> Json:
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), _MANY)
    return {"thresholds": [most]}
