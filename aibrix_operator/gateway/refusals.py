"""Every error that the gateway answers by itself: one function each, so that status, header and wording stand once."""

from __future__ import annotations

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.verdict import ErrorType, Refuse
from aibrix_operator.gateway.view import Standing

_UNAVAILABLE = "service_unavailable"
_RATE_LIMITED = "rate_limit_exceeded"
_QUOTED = 300
"""Characters of what a client named that its error repeats: a name may be as long as a body."""
NOT_READ_YET_S = 1
"""Retry-After while the first lists are being read, which takes a second or two."""


def _quoted(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def wrong_key() -> Refuse:
    """No gateway key, or one that nobody has."""
    return Refuse(401, "Incorrect API key provided", "invalid_api_key", "api_key")


def unknown_user(name: str) -> Refuse:
    """The user store does not know the user, and only known ones are served."""
    return Refuse(401, f"user {_quoted(name)} is not known", "invalid_user", "user", {headers.ERROR_USER: "true"})


def no_user() -> Refuse:
    """The request names no user, and only known ones are served."""
    return Refuse(401, "the request names no user", "invalid_user", "user", {headers.ERROR_USER: "true"})


def unknown_path() -> Refuse:
    """No path that is routed by model."""
    return Refuse(501, "unknown request path", headers={headers.ERROR_BODY: "true"})


def wrong_method() -> Refuse:
    """A path that is only posted to."""
    return Refuse(405, "method not allowed", headers={"allow": "POST", headers.ERROR_BODY: "true"})


def bad_body(message: str = "error processing request body", param: str | None = None) -> Refuse:
    """The body is not what its path asks for."""
    return Refuse(400, message, None, param, {headers.ERROR_BODY: "true"})


def bad_form(message: str) -> Refuse:
    """The body is no multipart form, or one that may be read in two ways."""
    return Refuse(400, message, headers={headers.ERROR_MULTIPART: "true"})


def no_stream_usage() -> Refuse:
    """A stream that would not tell its tokens, of a user whose tokens are limited."""
    message = "streams of users with a token limit need stream_options.include_usage to be true"
    return Refuse(400, message, None, "stream_options", {headers.ERROR_NO_STREAM_USAGE: message})


def no_such_model(name: str) -> Refuse:
    """Nothing serves that name."""
    message = f"model {_quoted(name)} does not exist"
    return Refuse(400, message, "model_not_found", "model", {headers.ERROR_NO_BACKENDS: name})


def not_read_yet(name: str) -> Refuse:
    """The first lists are not in: the name may be one that was not read yet."""
    return Refuse(
        503,
        f"model {_quoted(name)} is not known yet: the gateway is starting; retry shortly",
        _UNAVAILABLE,
        "model",
        {headers.ERROR_NO_BACKENDS: name},
        NOT_READ_YET_S,
    )


def no_pods(name: str) -> Refuse:
    """The model has Pods, and none of them is ready."""
    return Refuse(
        503, f"error on getting pods for model {name}", _UNAVAILABLE, headers={headers.ERROR_NO_BACKENDS: "true"}
    )


def not_routable(name: str, standing: Standing) -> Refuse:
    """The model is claimed, and no engine serves it now."""
    reason = f" ({standing.reason})" if standing.reason else ""
    retry = "; retry shortly" if standing.retry_after_s is not None else ""
    return Refuse(
        503,
        f"model {name} is {standing.state}{reason}{retry}",
        _UNAVAILABLE,
        "model",
        {headers.ERROR_NO_BACKENDS: name},
        standing.retry_after_s,
        wake=standing.wake,
    )


def _routing(status: int, message: str, code: str | None = None) -> Refuse:
    return Refuse(status, message, code, headers={headers.ERROR_ROUTING: "true"})


def bad_strategy(text: str) -> Refuse:
    """No strategy of that name, or a mixture that cannot be."""
    return _routing(400, f"incorrect routing strategy {_quoted(text)}")


def no_strategy(name: str) -> Refuse:
    """Nothing names a strategy: neither header, profile nor default."""
    return _routing(
        503,
        f"no routing strategy for model {name}: set the header {headers.STRATEGY}, a profile's routingStrategy, or the "
        "gateway's default strategy",
        _UNAVAILABLE,
    )


def bad_filter(reason: str) -> Refuse:
    """``external-filter`` is no label selector."""
    return _routing(400, f"incorrect {headers.EXTERNAL_FILTER}: {_quoted(reason)}")


def nothing_left(name: str) -> Refuse:
    """``external-filter`` fits none of the model's ready Pods."""
    return _routing(503, f"error on selecting target pod: no ready pod of model {name} fits the filter", _UNAVAILABLE)


def rpm_exceeded(user: str, rpm: int, retry_after_s: int | None) -> Refuse:
    """The user's requests of this minute are used up."""
    message = f"user: {user} has exceeded RPM: {rpm}"
    return Refuse(429, message, _RATE_LIMITED, headers={headers.ERROR_RPM: "true"}, retry_after_s=retry_after_s)


def tpm_exceeded(user: str, tpm: int, retry_after_s: int | None) -> Refuse:
    """The user's tokens of this minute are used up, or reserved by requests that run."""
    message = f"user: {user} has exceeded TPM: {tpm}"
    return Refuse(429, message, _RATE_LIMITED, headers={headers.ERROR_TPM: "true"}, retry_after_s=retry_after_s)


def model_rps_exceeded(name: str, shown: str, retry_after_s: int | None) -> Refuse:
    """The model's requests of this window are used up."""
    message = f"model: {name} has exceeded RPS: {shown}"
    return Refuse(429, message, _RATE_LIMITED, headers={headers.ERROR_MODEL_RPS: "true"}, retry_after_s=retry_after_s)


def inflight_exceeded(name: str, cap: int, retry_after_s: int | None = None) -> Refuse:
    """Every engine of the model runs as many requests as it may."""
    return Refuse(
        429,
        f"model: {name} has exceeded replica inflight limit: {cap}",
        "replica_inflight_exceeded",
        headers={headers.ERROR_REPLICA_INFLIGHT: "true"},
        retry_after_s=retry_after_s,
        type=ErrorType.OVERLOADED,
    )


def counts_away(retry_after_s: int | None) -> Refuse:
    """The shared counts cannot be read, and the policy for that is to serve nobody."""
    return Refuse(503, "the gateway's limits cannot be checked now", _UNAVAILABLE, retry_after_s=retry_after_s)


def fault() -> Refuse:
    """An error of ours."""
    return Refuse(500, "internal error of the gateway", "internal_error")
