"""The routing text of a body: what of it an engine's prompt begins with, as pieces, without joining them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import orjson

Pieces: TypeAlias = list[str]


def add(pieces: Pieces, content: Any) -> None:
    """A string as it is, anything else by its JSON, nothing for what is absent. ``Any``: clients send anything.

    Raises orjson.JSONEncodeError for what is nested deeper than 254 levels.
    """
    if type(content) is str:
        pieces.append(content)
    elif content is not None:
        pieces.append(orjson.dumps(content).decode())


def of_messages(body: Mapping[str, Any], messages: Sequence[Any]) -> Pieces | None:
    """Contents of all messages, behind Anthropic's ``system``, which its engines put first. None: one is no object."""
    pieces: Pieces = []
    add(pieces, body.get("system"))
    for message in messages:
        if type(message) is not dict:
            return None
        add(pieces, message.get("content"))
    return pieces


def of_items(body: Mapping[str, Any], items: Sequence[Any]) -> Pieces | None:
    """Texts of Responses items behind their ``instructions``. None: one is no object."""
    pieces: Pieces = []
    add(pieces, body.get("instructions"))
    for item in items:
        if type(item) is not dict:
            return None
        content = item.get("content", item.get("text"))
        if type(content) is list:
            _add_parts(pieces, content)
        else:
            add(pieces, content)
    return pieces


def of_inputs(inputs: Sequence[Any]) -> Pieces:
    """Strings as they are, typed or flat parts by their text, all else by its JSON."""
    pieces: Pieces = []
    _add_parts(pieces, inputs)
    return pieces


def _add_parts(pieces: Pieces, parts: Sequence[Any]) -> None:
    for part in parts:
        text = part.get("text") if type(part) is dict else None
        add(pieces, text if type(text) is str else part)


def length_bytes(pieces: Pieces) -> int:
    """Of the joined text in UTF-8. What is ASCII is known to be so, and is not walked through."""
    total = max(len(pieces) - 1, 0)
    for piece in pieces:
        total += len(piece) if piece.isascii() else len(piece.encode())
    return total
