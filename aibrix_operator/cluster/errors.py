"""What a call to the API server can end in. Every message names the verb and the object.

``temporary`` tells a queue whether trying again can help. Server messages are cut to a bounded length, and those about
confidential kinds are left out, because a refusal may quote the value that it refuses.
"""

from __future__ import annotations

from typing import ClassVar

import orjson

SERVER_MESSAGE_MAX_CHARS = 1024


class ClusterError(Exception):
    """A call that did not do what it was asked. ``status`` is the HTTP status, 0 when no answer came."""

    temporary: ClassVar[bool] = False

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Conflict(ClusterError):
    """The object changed since it was read: look again and decide anew."""

    temporary = True


class AlreadyExists(ClusterError):
    """An object of that name is there."""


class NotFound(ClusterError):
    """The object, its namespace or its kind is gone."""


class Invalid(ClusterError):
    """The API server refuses the content; the message is the server's. The same call never succeeds."""


class Denied(ClusterError):
    """Missing or refused credentials, or RBAC. Somebody may grant it later."""

    temporary = True


class Expired(ClusterError):
    """A resourceVersion or a continue token is too old: list again."""

    temporary = True


class Unavailable(ClusterError):
    """No answer, or one that says "not now". ``retry_after_s`` is the server's wish, None when it has none.

    The call may have been done: only a fresh read tells.
    """

    temporary = True

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after_s = retry_after_s


def from_answer(
    call: str, status: int, body: bytes, retry_after_s: float | None, *, is_confidential: bool
) -> ClusterError:
    """The error that an answer of ``status`` 400 or more stands for; ``call`` is verb and object."""
    reason, message = _reason_and_message(body)
    told = (reason if is_confidential else message) or reason or "no reason given"
    text = f"{call}: HTTP {status}: {told}"
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(text, status=status)
    if status == 429 or status >= 500:
        return Unavailable(text, status=status, retry_after_s=retry_after_s)
    kinds: dict[int, type[ClusterError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 410: Expired}
    return kinds.get(status, Invalid)(text, status=status)


def _reason_and_message(body: bytes) -> tuple[str, str]:
    """Both out of a Status object; empty for anything else (a proxy's page is never quoted)."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", ""
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        return "", ""
    return str(answer.get("reason") or ""), str(answer.get("message") or "")[:SERVER_MESSAGE_MAX_CHARS]
