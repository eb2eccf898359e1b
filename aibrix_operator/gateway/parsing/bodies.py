"""What each API's JSON body must have, and its routing text. The rest is the engine's to judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from aibrix_operator.gateway import refusals
from aibrix_operator.gateway.parsing import texts
from aibrix_operator.gateway.request import Api
from aibrix_operator.gateway.verdict import Refuse

Body: TypeAlias = Mapping[str, Any]
Reader: TypeAlias = Callable[[Body], texts.Pieces | Refuse]
"""A body whose ``model`` is a string or absent → its routing text, or why it is refused."""

MOST_ENTRIES: Final = 2048
"""Of any array in an embeddings request, as OpenAI limits them. Tokens of texts only the model can count."""


def _required(name: str) -> Refuse:
    return refusals.bad_body(f"'{name}' is a required property", name)


def _messages(body: Body) -> texts.Pieces | Refuse:
    messages = body.get("messages")
    if messages is None or messages == []:
        return refusals.bad_body("no messages in the request body", "messages")
    pieces = texts.of_messages(body, messages) if type(messages) is list else None
    return refusals.bad_body(param="messages") if pieces is None else pieces


def _completions(body: Body) -> texts.Pieces | Refuse:
    prompt = body.get("prompt")
    if type(prompt) is str:
        return [prompt]
    if prompt is None and body.get("prompt_embeds") is not None:
        return []
    return _required("prompt") if prompt is None else refusals.bad_body("'prompt' must be one string", "prompt")


def _responses(body: Body) -> texts.Pieces | Refuse:
    if not body.get("model"):
        return _required("model")
    given = body.get("input")
    if given is None:
        return _required("input")
    if given == []:
        return refusals.bad_body("'input' array cannot be empty", "input")
    pieces: texts.Pieces | None = None
    if type(given) is str:
        pieces = texts.of_items(body, [{"content": given}])
    elif type(given) is list:
        pieces = texts.of_items(body, given)
    if pieces is None:
        return refusals.bad_body("'input' must be a string or an array of input items", "input")
    return pieces


def _embeddings(body: Body) -> texts.Pieces | Refuse:
    if body.get("stream"):
        return refusals.bad_body("stream not supported for embeddings", "stream")
    given = body.get("input")
    if type(given) is str:
        return [given]
    if given is None:
        return _messages(body) if body.get("messages") is not None else _required("input")
    if given == []:
        return refusals.bad_body("'input' array cannot be empty", "input")
    kinds = set(map(type, given)) if type(given) is list else set()
    if len(kinds) != 1 or not kinds <= {str, int, list, dict}:
        return refusals.bad_body("'input' must be a string, strings, token ids, lists of token ids, or parts", "input")
    if len(given) > MOST_ENTRIES or (list in kinds and any(len(entry) > MOST_ENTRIES for entry in given)):
        return refusals.bad_body(f"an array of 'input' may hold at most {MOST_ENTRIES} entries", "input")
    if list in kinds and any(type(token) is not int for entry in given for token in entry):
        return refusals.bad_body("a list in 'input' must hold token ids", "input")
    return texts.of_inputs([given] if int in kinds else given)


def _rerank(body: Body) -> texts.Pieces | Refuse:
    query, documents = body.get("query"), body.get("documents")
    for name in ("model", "query", "documents"):
        if not body.get(name):
            return _required(name)
    if type(documents) is not list:
        return refusals.bad_body("'documents' must be a list", "documents")
    return texts.of_inputs([query, *documents])


def _classify(body: Body) -> texts.Pieces | Refuse:
    given = body.get("input")
    if given is None:
        return _required("input")
    if type(given) is str:
        return [given]
    if type(given) is list and given and all(type(entry) is str for entry in given):
        return list(given)
    return refusals.bad_body("'input' must be a string or a list of strings", "input")


def _prompt(body: Body) -> texts.Pieces | Refuse:
    pieces: texts.Pieces = []
    texts.add(pieces, body.get("prompt"))
    return pieces


def _model_only(body: Body) -> texts.Pieces | Refuse:
    return []


READERS: Final[Mapping[Api, Reader]] = {
    Api.CHAT: _messages,
    Api.MESSAGES: _messages,
    Api.COMPLETIONS: _completions,
    Api.RESPONSES: _responses,
    Api.EMBEDDINGS: _embeddings,
    Api.RERANK: _rerank,
    Api.CLASSIFY: _classify,
    Api.IMAGES: _prompt,
    Api.VIDEO: _prompt,
    Api.TOKENIZE: _model_only,
    Api.DECISIONS: _model_only,
    Api.SYSTEM_ONE: _model_only,
    Api.SCORE: _model_only,
    Api.NATIVE_CLASSIFY: _model_only,
    Api.COUNT_TOKENS: _model_only,
}
"""Of all APIs that take JSON."""
