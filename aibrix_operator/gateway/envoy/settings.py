"""What can be set about Envoy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aibrix_operator.gateway.address import Address

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Tls:
    """Files, as Envoy sees them. Their folder is watched: a renewed certificate serves the next connection."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class EnvoySettings:
    """Envoy's configuration is a function of this. ``listen`` is where clients come; the others are ours."""

    listen: Address = field(default_factory=lambda: Address("0.0.0.0", 10080))
    admin: Address = field(default_factory=lambda: Address("127.0.0.1", 10081))
    questions: Address = field(default_factory=lambda: Address("127.0.0.1", 10082))
    """``wire.serve``"""
    reports: Address = field(default_factory=lambda: Address("127.0.0.1", 10083))
    """The gRPC services: the access log's and the one that puts errors into shape."""
    api: Address = field(default_factory=lambda: Address("127.0.0.1", 10084))
    """Our HTTP server, which answers ``/v1/models``."""
    tls: Tls | None = None
    """What clients are shown. None: they come without TLS."""
    timeout_s: float = 600.0
    """The one timeout. A request is ended when nothing moved for so long: while its body comes in, while it waits for a
    decision, until the engine's first byte, and between two bytes of a stream. A stream that goes on has no limit."""
    connect_timeout_s: float = 6.0
    """Until an engine takes a connection."""
    body_limit_bytes: int = 10 * MIB
    """Of a request, and of an answer in which usage is looked for; longer ones are refused with 413."""
    media_body_limit_bytes: int = 64 * MIB
    """In the place of ``body_limit_bytes`` for audio, images and video."""
    renew_interval_s: float = 5.0
    """How often the log tells that a request still runs."""
    log_flush_s: float = 0.02
    """How long the end of a request may wait for others to be told with it."""
    engine_idle_s: float = 4.0
    """An idle connection to an engine is closed after so long: before uvicorn, at 5 s, closes it under a request."""
    max_connections: int = 100_000
    """Clients' connections at once."""
    node_id: str = "aibrix-gateway"
    """This replica's name in Envoy's reports."""
