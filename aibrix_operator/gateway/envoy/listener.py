"""What Envoy does with a request, filter by filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aibrix_operator.gateway import headers, wire
from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.envoy import replies, routes, stream_usage, usage
from aibrix_operator.gateway.envoy.settings import MIB, EnvoySettings

Json = dict[str, Any]

QUESTIONS: Final = "questions"
"""Cluster: ``wire.serve``."""
REPORTS: Final = "reports"
"""Cluster: our gRPC services."""
CERTIFICATE: Final = "clients"
"""Secret: the certificate that clients are shown."""
FIRST_BYTE_TAG: Final = "first_byte_us"
"""Of the log: microseconds from the request's first byte to the first byte of the answer's body."""
FROM_ENGINE: Final = "x-envoy-upstream-service-time"
"""On answers of an engine alone: Envoy's own have no such header."""

_LOG_BUFFER_BYTES: Final = 16 * MIB
"""Entries that wait while we are busy, some 20,000 a worker. Envoy drops what comes when it is full."""
_TYPE: Final = "type.googleapis.com/envoy."
_UPSTREAM: Final = (
    headers.TARGET,
    headers.LEASE,
    headers.MODEL,
    headers.REWRITE_PATH,
    headers.REQUEST_ID_UPSTREAM,
    headers.STRATEGY,
    headers.WENT_THROUGH,
)
_REFUSAL: Final = (
    "content-type",
    "www-authenticate",
    headers.RETRY_AFTER,
    headers.REQUEST_ID,
    headers.STRATEGY,
    headers.CHOSEN_PROFILE,
    headers.UPDATE_RPM,
    headers.UPDATE_TPM,
)
"""Beside ``x-error-*``. Not all headers: the answers of ``wire.serve`` carry ``FROM_ENGINE`` too."""
_CLIENT: Final = (
    headers.CHOSEN_PROFILE,
    headers.REQUEST_ID,
    headers.SESSION_ID,
    headers.STRATEGY,
    headers.TARGET_ADDRESS,
    headers.UPDATE_RPM,
    headers.UPDATE_TPM,
    headers.WENT_THROUGH,
)


def listener(settings: EnvoySettings, secret_file: Path) -> Json:
    chain: Json = {
        "filters": [
            {
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": _connection_manager(settings),
            }
        ]
    }
    if settings.tls is not None:
        chain["transport_socket"] = _named("envoy.transport_sockets.tls", _tls(secret_file))
    return {
        "name": "gateway",
        "address": socket(settings.listen),
        "tcp_backlog_size": 4096,
        "filter_chains": [chain],
    }


def _tls(secret_file: Path) -> Json:
    return {
        "@type": f"{_TYPE}extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
            "tls_certificate_sds_secret_configs": [
                {"name": CERTIFICATE, "sds_config": {"path_config_source": {"path": str(secret_file)}}}
            ],
        },
    }


def socket(address: Address) -> Json:
    if address.path:
        return {"pipe": {"path": address.path}}
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def _connection_manager(settings: EnvoySettings) -> Json:
    timeout = f"{settings.timeout_s}s"
    return {
        "@type": f"{_TYPE}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "codec_type": "AUTO",
        "use_remote_address": True,
        "normalize_path": True,
        "generate_request_id": False,
        "stream_idle_timeout": timeout,
        "request_headers_timeout": timeout,
        "common_http_protocol_options": {"idle_timeout": timeout},
        "early_header_mutation_extensions": [_named("envoy.http.early_header_mutation.header_mutation", _strip())],
        "http_filters": _filters(settings),
        "route_config": routes.route_config(settings),
        "local_reply_config": replies.local_reply_config(),
        "access_log": [_named("envoy.access_loggers.http_grpc", _access_log(settings))],
        "access_log_options": {"access_log_flush_interval": f"{settings.renew_interval_s}s"},
    }


def _strip() -> Json:
    """What clients may never say goes first of all: ours, and what would tell Envoy itself to retry or to dial."""
    names = (*headers.INTERNAL, headers.REQUEST_ID_UPSTREAM, wire.CLIENT_POD)
    mutations: list[Json] = [{"remove": name} for name in names]
    mutations.append({"remove_on_match": {"key_matcher": {"prefix": "x-envoy-"}}})
    return {
        "@type": f"{_TYPE}extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        "mutations": mutations,
    }


def _filters(settings: EnvoySettings) -> list[Json]:
    """A request passes them from first to last, an answer from last to first."""
    return [
        _named(routes.ENGINE_ERRORS, _shape_errors(settings)),
        _named(routes.STREAM_USAGE, _read_streams()),
        _named(routes.JSON_USAGE, usage.json_filter(names_model=True)),
        _named(routes.JSON_USAGE_ALONE, usage.json_filter(names_model=False)),
        _named(routes.AUTHZ, _ask(settings)),
        # Without counters by status: the log tells more.
        _named(
            "envoy.filters.http.router",
            {"@type": f"{_TYPE}extensions.filters.http.router.v3.Router", "dynamic_stats": False},
        ),
    ]


def _named(name: str, config: Json) -> Json:
    return {"name": name, "typed_config": config}


def _ask(settings: EnvoySettings) -> Json:
    return {
        "@type": f"{_TYPE}extensions.filters.http.ext_authz.v3.ExtAuthz",
        "allowed_headers": _patterns(headers.READ),
        "with_request_body": {"max_request_bytes": settings.body_limit_bytes, "allow_partial_message": False},
        "status_on_error": {"code": "ServiceUnavailable"},
        "clear_route_cache": True,
        "charge_cluster_response_stats": False,
        "http_service": {
            "server_uri": {"uri": "http://gateway", "cluster": QUESTIONS, "timeout": f"{settings.timeout_s}s"},
            "authorization_response": {
                "allowed_client_headers": {"patterns": [*_patterns(_REFUSAL)["patterns"], {"prefix": "x-error-"}]},
                "allowed_upstream_headers": _patterns(_UPSTREAM),
                "allowed_client_headers_on_success": _patterns(_CLIENT),
                "dynamic_metadata_from_headers": _patterns((wire.CLIENT_POD,)),
            },
        },
    }


def _patterns(names: tuple[str, ...]) -> Json:
    return {"patterns": [{"exact": name} for name in names]}


def _access_log(settings: EnvoySettings) -> Json:
    return {
        "@type": f"{_TYPE}extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
        "additional_request_headers_to_log": [headers.LEASE],
        "common_config": {
            "log_name": "gateway",
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": REPORTS}},
            "buffer_flush_interval": f"{settings.log_flush_s}s",
            "buffer_size_bytes": _LOG_BUFFER_BYTES,
            "custom_tags": [{"tag": FIRST_BYTE_TAG, "value": "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%"}],
        },
    }


def _shape_errors(settings: EnvoySettings) -> Json:
    """The filter that changes an answer's body, made for those answers alone that failed."""
    composite = _named("composite", {"@type": f"{_TYPE}extensions.filters.http.composite.v3.Composite"})
    action = {
        "@type": f"{_TYPE}extensions.filters.http.composite.v3.ExecuteFilterAction",
        "typed_config": _named("envoy.filters.http.ext_proc", _error_shaper(settings)),
    }
    return _matched(composite, {"or_matcher": {"predicate": [_is_engine_error(), _is_hidden_failure()]}}, action)


def _read_streams() -> Json:
    """A filter that other answers pass by. Not made on demand as the one above: that would compile its script anew."""
    script = _named("envoy.filters.http.lua", stream_usage.lua_filter())
    skip = {"@type": f"{_TYPE}extensions.filters.common.matcher.action.v3.SkipFilter"}
    return _matched(script, {"not_matcher": _is_stream()}, skip)


def _matched(http_filter: Json, predicate: Json, action: Json) -> Json:
    """``http_filter``, with ``action`` on answers that ``predicate`` names."""
    matcher = {"predicate": predicate, "on_match": {"action": _named("action", action)}}
    return {
        "@type": f"{_TYPE}extensions.common.matching.v3.ExtensionWithMatcher",
        "extension_config": http_filter,
        "xds_matcher": {"matcher_list": {"matchers": [matcher]}},
    }


def _error_shaper(settings: EnvoySettings) -> Json:
    timeout = f"{settings.timeout_s}s"
    return {
        "@type": f"{_TYPE}extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": REPORTS}, "timeout": timeout},
        "message_timeout": timeout,
        "failure_mode_allow": True,  # better the engine's words than none
        "processing_mode": {
            "request_header_mode": "SKIP",
            "response_header_mode": "SEND",
            "request_body_mode": "NONE",
            "response_body_mode": "BUFFERED",
        },
    }


def _is_engine_error() -> Json:
    return _all_of(_answer_header(":status", "[45].."), _answer_header(FROM_ENGINE, ".*"))


def _is_hidden_failure() -> Json:
    """A 200 without what a 200 has. The status is looked at first, because only it is known of every answer."""
    wrong = {"or_matcher": {"predicate": [_marked(usage.NO_MODEL), _marked(usage.NO_JSON)]}}
    status = _answer_header(":status", "200")
    return _all_of(status, _answer_header(FROM_ENGINE, ".*"), {"not_matcher": _is_stream()}, wrong)


def _is_stream() -> Json:
    return _answer_header("content-type", "text/event-stream.*")


def _all_of(*predicates: Json) -> Json:
    return {"and_matcher": {"predicate": list(predicates)}}


def _answer_header(name: str, regex: str) -> Json:
    return {
        "single_predicate": {
            "input": _named(
                "response-headers",
                {"@type": f"{_TYPE}type.matcher.v3.HttpResponseHeaderMatchInput", "header_name": name},
            ),
            "value_match": {"safe_regex": {"google_re2": {}, "regex": regex}},
        }
    }


def _marked(key: str) -> Json:
    """``usage`` has found this of the answer."""
    return {
        "single_predicate": {
            "input": _named(
                "envoy.matching.inputs.dynamic_metadata",
                {
                    "@type": f"{_TYPE}extensions.matching.common_inputs.network.v3.DynamicMetadataInput",
                    "filter": usage.NAMESPACE,
                    "path": [{"key": key}],
                },
            ),
            "custom_match": _named(
                "envoy.matching.matchers.metadata_matcher",
                {
                    "@type": f"{_TYPE}extensions.matching.input_matchers.metadata.v3.Metadata",
                    "value": {"bool_match": True},
                },
            ),
        }
    }
