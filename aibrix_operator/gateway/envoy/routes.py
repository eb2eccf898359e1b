"""Which requests are asked about, and what becomes of the others."""

from __future__ import annotations

from typing import Any, Final

from aibrix_operator.gateway import headers, wire
from aibrix_operator.gateway.envoy.settings import EnvoySettings
from aibrix_operator.gateway.request import Api

Json = dict[str, Any]

ENGINES: Final = "engines"
"""Cluster: the engine that ``target-pod`` names."""
OWN_API: Final = "api"
"""Cluster: our HTTP server."""
AUTHZ: Final = "envoy.filters.http.ext_authz"
ENGINE_ERRORS: Final = "engine-errors"
STREAM_USAGE: Final = "stream-usage"
JSON_USAGE: Final = "json-usage"
"""Of answers that name their model, else they are failures that pass for a 200."""
JSON_USAGE_ALONE: Final = "json-usage-alone"

_MEDIA: Final = (Api.IMAGES, Api.VIDEO, Api.TRANSCRIPTIONS, Api.TRANSLATIONS)
_JSON_USAGE_OF: Final = {
    **dict.fromkeys((Api.CHAT, Api.MESSAGES, Api.COMPLETIONS, Api.RESPONSES), JSON_USAGE),
    **dict.fromkeys((Api.TRANSCRIPTIONS, Api.TRANSLATIONS), JSON_USAGE_ALONE),
}
"""Answers of the others say nothing of tokens, or are too long to be held back: embeddings."""
_UNHEARD: Final = ["accept-encoding"]
"""A compressed answer could not be looked into: it would pass for one that is not JSON."""
_DISABLED: Final = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": True}


def route_config(settings: EnvoySettings) -> Json:
    """In order: what was decided to go to another path, the APIs, wrong methods on them, our own API, the rest."""
    routes = [
        _rewritten(),
        *(route for api in Api for route in (_too_long(api, settings), _engine_route(api, settings))),
        *(_says({"path": str(api)}, 405, "method not allowed", {"allow": "POST"}) for api in Api),
        *_own_routes(settings),
        _says({"path_separated_prefix": "/v1/models"}, 405, "method not allowed", {"allow": "GET, HEAD"}),
        *(
            _says({"path_separated_prefix": path}, 501, "there is no batch API at this gateway", {})
            for path in ("/v1/files", "/v1/batches")
        ),
        _says({"prefix": "/"}, 501, "unknown request path", {headers.ERROR_BODY: "true"}),
    ]
    return {
        "name": "gateway",
        "virtual_hosts": [{"name": "gateway", "domains": ["*"], "routes": routes}],
    }


def _engine_route(api: Api, settings: EnvoySettings) -> Json:
    filters = _json_usage_off(_JSON_USAGE_OF.get(api))
    if api in _MEDIA:
        filters[AUTHZ] = _media_body(settings)
    return {
        "match": {"path": str(api), "headers": [_method("POST")]},
        "route": {"cluster": ENGINES, "timeout": "0s"},
        "request_headers_to_remove": _UNHEARD,
        "response_headers_to_add": [_pod_name()],
        "typed_per_filter_config": filters,
    }


def _rewritten() -> Json:
    """Taken at the second look alone, after the decision: a client's own header of this name is gone by then."""
    return {
        "match": {"prefix": "/", "headers": [{"name": headers.REWRITE_PATH, "present_match": True}]},
        # The query stays where it is.
        "route": {"cluster": ENGINES, "timeout": "0s", "path_rewrite": f"%REQ({headers.REWRITE_PATH})%"},
        "request_headers_to_remove": _UNHEARD,
        "response_headers_to_add": [_pod_name()],
    }


def _pod_name() -> Json:
    header = {"key": headers.TARGET, "value": f"%DYNAMIC_METADATA({AUTHZ}:{wire.CLIENT_POD})%"}
    return {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _media_body(settings: EnvoySettings) -> Json:
    return {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute",
        "check_settings": {"with_request_body": {"max_request_bytes": settings.media_body_limit_bytes}},
    }


def _own_routes(settings: EnvoySettings) -> list[Json]:
    return [
        {
            "match": {"path_separated_prefix": "/v1/models", "headers": [_method(method)]},
            "route": {"cluster": OWN_API, "timeout": f"{settings.timeout_s}s"},
            "typed_per_filter_config": _all_off(),
        }
        for method in ("GET", "HEAD")
    ]


def _too_long(api: Api, settings: EnvoySettings) -> Json:
    """Refused by its content-length, before any of the body is read."""
    limit_bytes = settings.media_body_limit_bytes if api in _MEDIA else settings.body_limit_bytes
    length = {"name": "content-length", "range_match": {"start": limit_bytes + 1, "end": 1 << 62}}
    message = f"the request body is larger than {limit_bytes} bytes"
    return _says({"path": str(api), "headers": [length]}, 413, message, {})


def _says(match: Json, status: int, message: str, extra: dict[str, str]) -> Json:
    """Envoy answers by itself; ``replies`` makes ``message`` an error in OpenAI's shape."""
    return {
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": message}},
        "response_headers_to_add": [{"header": {"key": key, "value": value}} for key, value in extra.items()],
        "typed_per_filter_config": _all_off(),
    }


def _all_off() -> Json:
    return {AUTHZ: _DISABLED, ENGINE_ERRORS: _DISABLED, STREAM_USAGE: _DISABLED, **_json_usage_off(None)}


def _json_usage_off(but: str | None) -> Json:
    return {name: _DISABLED for name in (JSON_USAGE, JSON_USAGE_ALONE) if name != but}


def _method(method: str) -> Json:
    return {"name": ":method", "string_match": {"exact": method}}
