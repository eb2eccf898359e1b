"""``aibrix-operator gateway``: from its options to what runs, which is imported when it runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import typer

from aibrix_operator import log_output, option_groups
from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.flags import (
    ClusterFlags,
    EnvoyFlags,
    LimitFlags,
    ProcessFlags,
    RoutingFlags,
    UserFlags,
)

if TYPE_CHECKING:
    from aibrix_operator.gateway.envoy.settings import EnvoySettings, Tls
    from aibrix_operator.gateway.options import Options

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@option_groups.flattened
def gateway(
    cluster: ClusterFlags,
    envoy: EnvoyFlags,
    routing: RoutingFlags,
    users: UserFlags,
    limits: LimitFlags,
    process: ProcessFlags,
) -> None:
    """Serve models to clients: Envoy carries their requests, and asks us where each may go.

    Finds engines by Pod labels and ModelClaim routes, wakes sleeping ones, limits users, models and replicas.
    Runs until SIGTERM, which lets requests finish first, or until Envoy ends.
    """
    import uvloop

    from aibrix_operator.gateway import app
    from aibrix_operator.gateway.envoy.config import write_config
    from aibrix_operator.gateway.envoy.process import EnvoyError
    from aibrix_operator.gateway.limits.users import BadRecordError
    from aibrix_operator.gateway.strategies.book import StrategyError

    log_output.to_stderr(process.log_level)
    options = _options(cluster, envoy, routing, users, limits, process)
    if envoy.configure:
        if options.envoy_config is None:
            raise typer.BadParameter("needs --envoy-config", param_hint="--configure")
        write_config(options.envoy, options.envoy_config)
        return
    try:
        uvloop.run(app.serve(options))
    except (app.GatewayError, EnvoyError, StrategyError, BadRecordError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def _options(
    cluster: ClusterFlags,
    envoy: EnvoyFlags,
    routing: RoutingFlags,
    users: UserFlags,
    limits: LimitFlags,
    process: ProcessFlags,
) -> Options:
    from aibrix_operator.gateway.limits.users import Mode, Policy
    from aibrix_operator.gateway.options import Options
    from aibrix_operator.gateway.watching import Scope

    own = _address(process.api, "--api")
    return Options(
        kubeconfig=cluster.kubeconfig,
        scope=Scope(cluster.namespace, cluster.pod_selector),
        envoy=_envoy_settings(envoy, own, process.name or "aibrix-gateway"),
        api=own,
        envoy_binary=envoy.envoy,
        envoy_config=envoy.envoy_config,
        envoy_concurrency=envoy.envoy_concurrency,
        default_strategy=routing.default_strategy.strip() or None,
        default_output_tokens=limits.default_output_tokens,
        key_file=users.key_file,
        keys_file=users.keys_file,
        users_file=users.users_file,
        users_mode=Mode(users.users_mode),
        redis_url=_redis(limits.redis_url, limits.redis_url_file),
        redis_away=Policy(limits.redis_away),
        runtime_token_file=cluster.runtime_token_file,
        metrics_by_pod=process.metrics_by_pod,
        slow_first_token_s=process.slow_first_token,
        scrape_period_s=routing.scrape_interval / 1000,
        grace_s=envoy.grace,
        name=process.name or socket.gethostname(),
    )


def _envoy_settings(envoy: EnvoyFlags, api: Address, node_id: str) -> EnvoySettings:
    from aibrix_operator.gateway.envoy.settings import EnvoySettings

    return EnvoySettings(
        listen=_address(envoy.listen, "--listen"),
        admin=_address(envoy.envoy_admin, "--envoy-admin"),
        questions=_address(envoy.questions, "--questions"),
        reports=_address(envoy.reports, "--reports"),
        api=replace(api, host=_LOOPBACK.get(api.host, api.host)),
        tls=_tls(envoy.tls_certificate, envoy.tls_key),
        timeout_s=envoy.timeout,
        body_limit_bytes=envoy.body_limit,
        media_body_limit_bytes=envoy.media_body_limit,
        node_id=node_id,
    )


def redis_of(environ: Mapping[str, str]) -> str | None:
    """The URL that AIBrix's variables REDIS_HOST, REDIS_PORT and REDIS_PASSWORD come to; None without a host."""
    host = environ.get("REDIS_HOST", "").strip()
    if not host:
        return None
    password = environ.get("REDIS_PASSWORD", "")
    login = f":{quote(password, safe='')}@" if password else ""
    return f"redis://{login}{host}:{environ.get('REDIS_PORT', '').strip() or '6379'}/0"


def _redis(url: str, url_file: Path | None) -> str | None:
    if url and url_file is not None:
        raise typer.BadParameter("exclude each other", param_hint="--redis-url and --redis-url-file")
    if url_file is not None:
        url = url_file.read_text().strip()
        if not url:
            raise typer.BadParameter(f"{url_file} is empty", param_hint="--redis-url-file")
    return url or redis_of(os.environ)


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    from aibrix_operator.gateway.envoy.settings import Tls

    if (certificate is None) != (key is None):
        raise typer.BadParameter("each needs the other", param_hint="--tls-certificate and --tls-key")
    return Tls(certificate, key) if certificate is not None and key is not None else None


def _address(text: str, option: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
