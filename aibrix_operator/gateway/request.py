"""One request as the decision sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Api(StrEnum):
    """The APIs that are routed by the model they name, by path."""

    CHAT = "/v1/chat/completions"
    MESSAGES = "/v1/messages"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    EMBEDDINGS = "/v1/embeddings"
    RERANK = "/v1/rerank"
    CLASSIFY = "/v1/classify"
    IMAGES = "/v1/images/generations"
    VIDEO = "/v1/video/generations"
    TRANSCRIPTIONS = "/v1/audio/transcriptions"
    TRANSLATIONS = "/v1/audio/translations"
    TOKENIZE = "/tokenize"
    DECISIONS = "/v1/decisions"
    SYSTEM_ONE = "/v1/systemone"
    SCORE = "/v1/score"
    NATIVE_CLASSIFY = "/classify"
    COUNT_TOKENS = "/v1/messages/count_tokens"


class RoutingText:
    """The texts of a prompt, joined by one blank when somebody first asks. Calling it gives the joined text."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[str] = ()) -> None:
        self._pieces = pieces

    def __call__(self) -> str:
        if len(self._pieces) != 1:
            self._pieces = (" ".join(self._pieces),)
        return self._pieces[0]

    def forget(self) -> None:
        """Let go of the texts: a request is remembered until its stream ends, its prompt need not be."""
        self._pieces = ()


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is known of a request once its body has been read."""

    id: str
    api: Api
    path: str
    """With its query, as the client sent it."""
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Lower-case name → value, of those that the decision reads."""
    stream: bool = False
    include_usage: bool = False
    """``stream_options.include_usage`` is true."""
    max_tokens: int | None = None
    """``max_tokens``, else ``max_completion_tokens``; ``max_output_tokens`` of the Responses API. None: not said."""
    prompt_bytes: int = 0
    """Length of the routing text in UTF-8."""
    text_of: Callable[[], str] = field(default_factory=RoutingText)
    """The routing text. Built only for the strategies that read it: it is as long as the prompt. Empty once the request
    was admitted."""
    user: str | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    """What strategies worked out of this request, by their names, so that it is worked out once."""

    @property
    def prompt_tokens(self) -> int:
        """An estimate: four bytes a token, as engines' tokenizers average on English text."""
        return -(-self.prompt_bytes // 4)

    def forget_text(self) -> None:
        """Let go of the prompt, which nobody reads after the request was admitted. Its length stays."""
        if isinstance(self.text_of, RoutingText):
            self.text_of.forget()
