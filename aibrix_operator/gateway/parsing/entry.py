"""From what Envoy handed on to a request that can be decided, or to the error that the client gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from aibrix_operator.gateway import headers, refusals
from aibrix_operator.gateway.exchange import Question
from aibrix_operator.gateway.parsing import bodies, forms, identity, texts
from aibrix_operator.gateway.request import Api, Request, RoutingText
from aibrix_operator.gateway.verdict import Refuse

_APIS: Final[Mapping[str, tuple[Api, bodies.Reader | None]]] = {
    api.value: (api, bodies.READERS.get(api)) for api in Api
}
"""Path → API and the reader of its JSON; None: a multipart form."""
_READ: Final = (
    headers.STRATEGY,
    headers.CONFIG_PROFILE,
    headers.EXTERNAL_FILTER,
    headers.SESSION_ID,
    headers.SESSION_KEY,
)
"""Headers that decide where a request goes."""
_TRUE: Final = frozenset({"true", "1"})


def parse(question: Question, request_id: str, user: str | None) -> Request | Refuse:
    """The request of ``user``. Routed by the path alone: its query is kept, and not looked at."""
    found = _APIS.get(question.path.partition("?")[0])
    if found is None:
        return refusals.unknown_path()
    if question.method != "POST":
        return refusals.wrong_method()
    api, reader = found
    if reader is None:
        return _parse_form(question, api, request_id, user)
    try:
        body = orjson.loads(question.body)
    except orjson.JSONDecodeError:
        return refusals.bad_body()
    if type(body) is not dict:
        return refusals.bad_body()
    return _parse_json(question, body, api, reader, request_id, user)


def _parse_json(
    question: Question, body: bodies.Body, api: Api, reader: bodies.Reader, request_id: str, user: str | None
) -> Request | Refuse:
    model = body.get("model")
    if model is None:
        model = ""
    elif type(model) is not str:
        return refusals.bad_body(param="model")
    stream = body.get("stream")
    if stream is not None and type(stream) is not bool:
        return refusals.bad_body("'stream' must be true or false", "stream")
    try:
        pieces = reader(body)
    except orjson.JSONEncodeError:
        # It reads deeper nesting than it writes.
        return refusals.bad_body("the request body is nested too deep")
    if isinstance(pieces, Refuse):
        return pieces
    options = body.get("stream_options")
    return Request(
        id=request_id,
        api=api,
        path=question.path,
        model=model,
        headers=_routing_headers(question.headers),
        stream=stream is True,
        include_usage=type(options) is dict and options.get("include_usage") is True,
        max_tokens=_max_tokens(api, body),
        prompt_bytes=texts.length_bytes(pieces),
        text_of=RoutingText(pieces),
        user=user,
    )


def _parse_form(question: Question, api: Api, request_id: str, user: str | None) -> Request | Refuse:
    content_type = question.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != forms.FORM_TYPE:
        return refusals.bad_body("audio requests must use multipart/form-data content-type")
    try:
        form = forms.parse(content_type, bytes(question.body))
    except forms.FormError as error:
        return refusals.bad_form(str(error))
    return Request(
        id=request_id,
        api=api,
        path=question.path,
        model=form.model or "",
        headers=_routing_headers(question.headers),
        stream=form.stream in _TRUE,
        user=user,
    )


def _routing_headers(given: Mapping[str, str]) -> Mapping[str, str]:
    return {name: identity.text(given[name]) for name in _READ if name in given}


def _max_tokens(api: Api, body: Mapping[str, Any]) -> int | None:
    names = ("max_output_tokens",) if api is Api.RESPONSES else ("max_tokens", "max_completion_tokens")
    for name in names:
        value = body.get(name)
        if type(value) is int and value >= 0:
            return value
    return None
