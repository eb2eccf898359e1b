"""One request as the decision sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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


def _no_text() -> str:
    return ""


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
    """``max_tokens``, else ``max_completion_tokens``."""
    prompt_bytes: int = 0
    """Length of the routing text in UTF-8."""
    text_of: Callable[[], str] = _no_text
    """The routing text. Built only for the strategies that read it: it is as long as the prompt."""
    user: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """An estimate: four bytes a token, as engines' tokenizers average on English text."""
        return -(-self.prompt_bytes // 4)
