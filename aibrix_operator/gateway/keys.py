"""Who may ask at all: one key for everybody, or keys that each name their user."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from aibrix_operator.gateway import headers


class KeyFileError(ValueError):
    """A file of keys that cannot be used. The text names the line, and never a key."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Of a key that is known."""

    user: str | None
    """None: of the key that everybody shares, who say themselves who they are."""


class Keys:
    """Known keys, kept as digests under a secret of this process.

    Looking a digest up takes no longer the more of a key was guessed right, and costs the same for any number of keys.
    """

    def __init__(self, users: Mapping[str, str | None]) -> None:
        """Key → the user who holds it."""
        self._secret = secrets.token_bytes(32)
        self._holders: dict[bytes, tuple[bytes, Holder]] = {}
        for key, user in users.items():
            digest = self._digest(key.encode())
            self._holders[digest] = (digest, Holder(user))

    @classmethod
    def parse(cls, text: str) -> Keys:
        """Of a file: a key and its user's name on each line, a blank between; ``#`` begins a comment line."""
        users: dict[str, str | None] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split(maxsplit=1)
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2:
                raise KeyFileError(f"line {number}: a key and its user's name are wanted")
            if words[0] in users:
                raise KeyFileError(f"line {number}: the key of this line is there twice")
            users[words[0]] = words[1].strip()
        if not users:
            raise KeyFileError("there is no key in it: nobody could ask")
        return cls(users)

    def holder(self, given: Mapping[str, str]) -> Holder | None:
        """Who sent these headers. None: no key, or one that is not known."""
        key = _presented(given)
        if not key:
            return None
        digest = self._digest(key)
        known = self._holders.get(digest)
        return known[1] if known is not None and hmac.compare_digest(known[0], digest) else None

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, digest_size=32, key=self._secret).digest()


def _presented(given: Mapping[str, str]) -> bytes:
    """The bearer token, else what Anthropic's clients send instead. Empty: neither."""
    scheme, _, token = given.get(headers.AUTHORIZATION, "").strip().partition(" ")
    key = token.strip() if scheme.lower() == "bearer" else given.get(headers.API_KEY, "").strip()
    try:
        # Bytes of a header are handed on as latin-1; a key in a file is UTF-8.
        return key.encode("latin-1")
    except UnicodeEncodeError:
        return key.encode("utf-8", "surrogatepass")
