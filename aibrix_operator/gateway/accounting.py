"""What a finished request comes to: success or failure, and the tokens that are charged for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aibrix_operator.gateway.request import Api, Request
from aibrix_operator.gateway.settlement import Ended
from aibrix_operator.gateway.strategies.base import Usage

SUCCESS: Final = "gateway_request_success"
CLIENT_LEFT: Final = "context_cancelled"
"""The client closed after its answer had begun, which is no failure."""
CLIENT_LEFT_EARLY: Final = "client_cancelled_eof"
NO_RESPONSE: Final = "no_response_err"
REFUSED_BY_ENGINE: Final = "response_headers_fail"
BROKE_OFF: Final = "response_body_fail"
CLIENT_CLOSED: Final = 499
NO_STATUS: Final = 500

_LEFT: Final = frozenset({"DC", "DR"})
_NEVER_ANSWERED: Final = frozenset({"UF", "UH", "NR", "NC", "UO", "URX", "UT", "OM", "DF"})
_BROKEN: Final = frozenset({"UC", "UR", "LR", "UT", "UPE", "SI", "DT", "UMSDR", "OM", "DPE"})

_UNCHARGED: Final = frozenset({Api.COUNT_TOKENS, Api.TOKENIZE})
"""Their answers are about tokens, and cost none."""
_WRITING: Final = frozenset({Api.CHAT, Api.MESSAGES, Api.COMPLETIONS, Api.RESPONSES})
"""Their answers are text, so that the length of one tells its tokens."""
TEXT_BYTES_A_TOKEN: Final = 4
EVENT_BYTES_A_TOKEN: Final = 200
"""Engines stream one event a token; OpenAI's has about so many bytes around its few of text."""
MESSAGE_EVENT_BYTES_A_TOKEN: Final = 120
"""The same of Anthropic's ``content_block_delta``."""


@dataclass(frozen=True, slots=True)
class Account:
    """``status`` and ``status_code`` are labels of the success and failure counters."""

    is_success: bool
    status: str
    status_code: int
    usage: Usage | None = None
    """None: nothing is charged."""

    @property
    def tokens(self) -> int | None:
        """What takes the place of the user's reserve."""
        return None if self.usage is None else self.usage.total


def account(ended: Ended, request: Request) -> Account:
    """The engine's own figures are charged, whatever became of the answer; an estimate only for text that was sent."""
    left = bool(ended.flags & _LEFT)
    began = ended.first_byte_s is not None or ended.response_bytes > 0
    status, code = _fate(ended, left, began)
    is_success = status in (SUCCESS, CLIENT_LEFT)
    return Account(is_success, status, code, _usage(ended, request, is_success, left))


def _fate(ended: Ended, left: bool, began: bool) -> tuple[str, int]:
    code = ended.status
    if left and not began:
        return CLIENT_LEFT_EARLY, CLIENT_CLOSED
    if code == 0:
        return NO_RESPONSE, NO_STATUS
    if not 200 <= code < 300:
        return (NO_RESPONSE if ended.flags & _NEVER_ANSWERED else REFUSED_BY_ENGINE), code
    if left:
        return CLIENT_LEFT, code
    return (BROKE_OFF if ended.flags & _BROKEN else SUCCESS), code


def _usage(ended: Ended, request: Request, is_success: bool, left: bool) -> Usage | None:
    if request.api in _UNCHARGED:
        return None
    total = ended.total()
    if total is not None:
        return _told(ended, request, total, left)
    if not is_success:
        return None
    completion = _streamed(ended, request)
    prompt = request.prompt_tokens
    return Usage(prompt, completion, prompt + completion, is_estimate=True) if prompt + completion else None


def _told(ended: Ended, request: Request, total: int, left: bool) -> Usage | None:
    prompt = (ended.prompt_tokens or 0) + (ended.cached_tokens or 0)
    completion = ended.completion_tokens or 0
    if ended.total_tokens is not None:
        # Engines that tell a total count cached tokens as prompt tokens.
        completion = min(completion, total)
        return Usage(total - completion, completion, total) if total else None
    streamed = _streamed(ended, request) if left else 0
    if streamed > completion:
        # Anthropic tells the input first and the output last: a client that left heard of the first only.
        return Usage(prompt, streamed, prompt + streamed, is_estimate=True)
    return Usage(prompt, completion, total) if total else None


def _streamed(ended: Ended, request: Request) -> int:
    """Tokens of text that reached the client, by its length; never more than were asked for."""
    if request.api not in _WRITING:
        return 0
    size = TEXT_BYTES_A_TOKEN
    if request.stream:
        size = MESSAGE_EVENT_BYTES_A_TOKEN if request.api is Api.MESSAGES else EVENT_BYTES_A_TOKEN
    tokens = -(-ended.response_bytes // size)
    return tokens if request.max_tokens is None else min(tokens, request.max_tokens)
