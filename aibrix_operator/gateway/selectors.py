"""Kubernetes' label selectors as text: ``zone=a,tier in (x, y),!canary``.

The grammar is that of ``kubectl -l``. One thing is stricter: ``zone==`` is refused, because an operator that compares
with nothing is a template that was not filled in (``zone=`` asks for the empty value, as Kubernetes reads it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

Labels: TypeAlias = Mapping[str, str]
LONGEST: Final = 4096
"""Characters of a selector that is read at all."""

_TOKEN = re.compile(r"\s*(?:(?P<op>==|!=|[=!<>(),])|(?P<word>[A-Za-z0-9_./-]+))")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class SelectorError(ValueError):
    """No label selector. The text says where."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    holds: Callable[[str | None], bool]
    """Of the label's value; None: it is absent."""


@dataclass(frozen=True, slots=True)
class Selector:
    """All conditions have to hold."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Labels) -> bool:
        """Whether an object with these labels is meant. The empty selector means all."""
        return all(each.holds(labels.get(each.key)) for each in self.requirements)


@lru_cache(maxsize=1024)
def parse(text: str) -> Selector:
    """Raises SelectorError. Clients send the same few texts: those are kept."""
    if len(text) > LONGEST:
        raise SelectorError(f"a selector may have at most {LONGEST} characters")
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    while tokens.next:
        requirements.append(_requirement(tokens))
        if tokens.next:
            tokens.take(",")
            if not tokens.next:
                raise SelectorError("a requirement is missing after the last comma")
    return Selector(tuple(requirements))


class _Tokens:
    def __init__(self, tokens: list[str]) -> None:
        self._left = tokens[::-1]

    @property
    def next(self) -> str:
        """Empty at the end."""
        return self._left[-1] if self._left else ""

    def take(self, wanted: str = "") -> str:
        """The next one, which is ``wanted`` if that is given."""
        if not self._left or (wanted and self._left[-1] != wanted):
            found = f"{self._left[-1]!r}" if self._left else "the end"
            raise SelectorError(f"found {found} where {wanted or 'more'!r} is wanted")
        return self._left.pop()

    def is_word(self) -> bool:
        """Whether a key or value comes next."""
        return bool(self._left) and self._left[-1][0] not in "=!<>(),"


def _tokens(text: str) -> _Tokens:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at, end)
        if match is None:
            raise SelectorError(f"{text[at:].strip()[:20]!r} is neither label nor operator")
        tokens.append(match.group("op") or match.group("word"))
        at = match.end()
    return _Tokens(tokens)


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.next == "!":
        tokens.take()
        return Requirement(_key(tokens), lambda value: value is None)
    key = _key(tokens)
    operator = tokens.next
    if operator in ("", ","):
        return Requirement(key, lambda value: value is not None)
    tokens.take()
    if operator in ("=", "==", "!="):
        wanted = _value(tokens) if tokens.is_word() else ""
        if operator == "==" and not wanted:
            raise SelectorError(f"{key}== compares with nothing")
        return _is_other(key, {wanted}) if operator == "!=" else _is_one(key, {wanted})
    if operator in ("in", "notin"):
        values = _values(tokens)
        return _is_one(key, values) if operator == "in" else _is_other(key, values)
    if operator in ("<", ">"):
        return _compares(key, operator, _value(tokens))
    raise SelectorError(f"{operator!r} is no operator")


def _is_one(key: str, values: set[str]) -> Requirement:
    return Requirement(key, lambda value: value in values)


def _is_other(key: str, values: set[str]) -> Requirement:
    """Also of objects without the label, as in Kubernetes."""
    return Requirement(key, lambda value: value not in values)


def _compares(key: str, operator: str, limit: str) -> Requirement:
    if not _WHOLE.fullmatch(limit):
        raise SelectorError(f"{key}{operator} compares whole numbers, found {limit!r}")
    figure, is_less = int(limit), operator == "<"

    def holds(value: str | None) -> bool:
        if value is None or not _WHOLE.fullmatch(value):
            return False
        return int(value) < figure if is_less else int(value) > figure

    return Requirement(key, holds)


def _key(tokens: _Tokens) -> str:
    key = tokens.take() if tokens.is_word() else ""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix))):
        raise SelectorError(f"{key or tokens.next!r} is no label key")
    return key


def _value(tokens: _Tokens) -> str:
    value = tokens.take() if tokens.is_word() else ""
    if not _NAME.fullmatch(value):
        raise SelectorError(f"{value or tokens.next!r} is no label value")
    return value


def _values(tokens: _Tokens) -> set[str]:
    tokens.take("(")
    values: set[str] = set()
    while True:
        values.add(_value(tokens) if tokens.is_word() else "")
        if tokens.next != ",":
            break
        tokens.take()
    tokens.take(")")
    return values
