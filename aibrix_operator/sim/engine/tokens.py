"""Tokens of the simulated models: how text is counted, and what a model answers.

A token is up to five characters that are no blank, with at most one blank before them, or a single blank: the count
is the same everywhere and never above one token a character. Every word that a model answers is one token, so an
answer sent back as a prompt counts what it was billed for.
"""

import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

MAX_TOKEN_CHARACTERS = 6

_TOKEN = re.compile(r"\s?\S{1,5}|\s")
_VOCABULARY = 32_000
_SPEECH = (
    "a able all and any are as ask at back be been both but by can card day deep each end even far few find first for"
    " from full gives go good great has have her here high how idea in into is it just keep kind know large last let"
    " life light line lives long look main make many may mean mind more most move much must near need never new next"
    " no not now of off old on one only or order other our out over own part place plan point quick real right room"
    " same say see seems set show side small so some soon space start state still such take tell than that the their"
    " then there these they thing think this time to true turn two under until up us use very want water way we well"
    " what when where which while who why will wise with word work world year yes you your"
)
_WORDS = _SPEECH.split()


def split(text: str) -> list[str]:
    """The tokens of a text, in order; together they are the text."""
    return _TOKEN.findall(text)


def token_id(token: str) -> int:
    """The number of a token; different tokens may share one."""
    return zlib.crc32(token.encode("utf-8", "surrogatepass")) % _VOCABULARY


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model will answer, known before it starts: token by token, and why it ends."""

    seed: bytes
    length: int
    finish_reason: str  # "stop" or "length"
    stop_reason: str | None = None
    pieces: tuple[str, ...] | None = None  # the tokens' texts where stop texts cut them

    def piece(self, index: int) -> str:
        """The text of the token at ``index``."""
        return _word(self.seed, index) if self.pieces is None else self.pieces[index]

    def text(self, start: int, end: int) -> str:
        return "".join(map(self.piece, range(start, end)))


def answer(
    model: str,
    prompt: str,
    *,
    seed: int | None = None,
    max_tokens: int,
    min_tokens: int = 0,
    ignore_eos: bool = False,
    stop: Sequence[str] = (),
) -> Answer:
    """The one answer to these parameters: the same in every process and at every time.

    Left alone, a model ends by itself after 16 to 255 tokens.
    """
    digest = hashlib.blake2b(f"{model}\0{seed}\0{prompt}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
    natural = max(16 + digest[0] % 240, min_tokens)
    ends_itself = natural <= max_tokens and not ignore_eos
    length = natural if ends_itself else max_tokens
    whole = Answer(digest, length, "stop" if ends_itself else "length")
    return _cut(whole, stop) if stop else whole


def _cut(whole: Answer, stop: Sequence[str]) -> Answer:
    """End the answer where the first of the stop texts appears; that text is not part of it."""
    pieces: list[str] = []
    text = ""
    for index in range(whole.length):
        pieces.append(whole.piece(index))
        text += pieces[-1]
        found = [(at, mark) for mark in stop if (at := text.find(mark)) >= 0]
        if found:
            at, mark = min(found)
            cut, left = [], at
            for piece in pieces:
                cut.append(piece[:left])
                left -= len(cut[-1])
            return Answer(whole.seed, len(cut), "stop", mark, tuple(cut))
    return whole


def _word(seed: bytes, index: int) -> str:
    number = zlib.crc32(seed + index.to_bytes(4, "little"))
    word = _WORDS[number % len(_WORDS)]
    return f" {word}" if index else word.capitalize()
