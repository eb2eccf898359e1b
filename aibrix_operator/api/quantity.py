"""Kubernetes quantities, read as ``resource.ParseQuantity`` of apimachinery (v0.37) and CEL's ``isQuantity`` read them.

Called where a claim's ``perGPU`` figures become bytes. Exact: no figure passes through a float.
"""

from __future__ import annotations

import decimal
import functools
import json
import math
import re
from fractions import Fraction

PER_GPU_MISSING = "spec.perGPU is missing"
"""The error of a claim that declares no cost at all, beside those of ``figure_bytes``."""

LARGEST_FIGURE_BYTES = 1 << 50
WHOLE_BYTES_BELOW = 1 << 20
"""Below this a fraction of a byte is a slip of the unit, like ``30m`` for ``30M``; from here on it rounds up."""

# Looser than the documented grammar where apimachinery is: a number may lack digits on either side of its point and,
# as far as its exponent allows, altogether, so that "Ki", "+" and "." are zero.
_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>(?P<letters>[eEinumkKMGTP]*)[+-]?[0-9]*)"
)
_EXPONENT = re.compile(r"[eE](?P<exponent>[+-]?[0-9]+)")
_DECIMAL_EXPONENTS = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIXES_WANTING_DIGITS = frozenset({"Pi", "Ei"})
"""With these, and with exponents below nano, apimachinery leaves the fast path that takes a missing number for zero."""

_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_MAX_INT64_DIGITS = len(str(_MAX_INT64))
_SMALLEST_EXPONENT = -9
"""Nano: quantities have no finer digit, and a finer value is rounded away from zero."""
_LARGEST_EXPONENT = 100
"""Magnitudes of more digits than this are read as 10**100. ``1e999999999`` is legal, and nobody wants its digits."""
_SHOWN_CHARACTERS = 64
"""How much of a wrong value an error repeats: conditions are read by people."""


class QuantityError(ValueError):
    """A text that is no quantity. ``text`` is what was written, ``reason`` what is wrong with it."""

    def __init__(self, text: str, reason: str) -> None:
        """Say both in one sentence."""
        super().__init__(f"{json.dumps(_shown(text), ensure_ascii=False)} is not a quantity: {reason}")
        self.text = text
        self.reason = reason


class FigureError(QuantityError):
    """A ``perGPU`` figure that cannot be used; ``str()`` is the sentence that goes into the claim's condition."""

    def __init__(self, field: str, text: str, reason: str) -> None:
        """Name the field, the quantity as its user wrote it, and the reason."""
        super().__init__(text, reason)
        self.field = field

    def __str__(self) -> str:
        """``spec.perGPU.kvFloor is 0, which is not positive``."""
        written = _shown(self.text) or "empty"
        return f"spec.perGPU.{self.field} is {written}, which is {self.reason}"


def figure_bytes(field: str, text: str | int) -> int:
    """The bytes of one ``perGPU`` figure (``maximumFootprint`` or ``kvFloor``), a fraction of a byte rounded up.

    A figure may come as a bare integer, since the schema takes either. Raises FigureError when it is no quantity, not
    positive, more than 1Pi, or below 1Mi and not a whole number of bytes.
    """
    written = str(text)
    try:
        value = parse_quantity(written)
    except QuantityError as error:
        raise FigureError(field, written, f"not a quantity: {error.reason}") from error
    if value <= 0:
        raise FigureError(field, written, "not positive")
    if value > LARGEST_FIGURE_BYTES:
        raise FigureError(field, written, "more than 1Pi")
    if value < WHOLE_BYTES_BELOW and value.denominator != 1:
        raise FigureError(field, written, "not a whole number of bytes")
    return math.ceil(value)


@functools.lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Fraction:
    """The value that the API server sees in ``text``; raises QuantityError where it sees none.

    A sign, a decimal number, and one suffix: n u m k M G T P E, Ki to Ei, or e and an integer. ``1E`` is exa, ``1E3``
    is a thousand, ``1e`` is nothing. Values finer than nano are rounded away from zero, values with a binary suffix are
    capped at ±(2**63-1), and any other magnitude is capped at 10**100, beyond which apimachinery keeps counting.
    """
    if not text:
        raise QuantityError(text, "it is empty")
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise QuantityError(text, "it must be a decimal number followed by a suffix")
    whole, fraction, suffix = match["whole"], match["fraction"] or "", match["suffix"]
    number = f"{match['sign']}{whole or '0'}.{fraction or '0'}"
    is_binary = suffix in _BINARY_EXPONENTS
    exponent = _BINARY_EXPONENTS[suffix] if is_binary else _decimal_exponent(text, suffix)
    if not whole and not fraction and (suffix in _SUFFIXES_WANTING_DIGITS or exponent < _SMALLEST_EXPONENT):
        raise QuantityError(text, "its number has no digits")
    return _binary(number, exponent) if is_binary else _decimal(number, exponent)


def _decimal_exponent(text: str, suffix: str) -> int:
    """The power of ten that a suffix other than a binary one stands for."""
    if suffix in _DECIMAL_EXPONENTS:
        return _DECIMAL_EXPONENTS[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise QuantityError(text, f"{json.dumps(_shown(suffix))} is not one of its suffixes")
    digits = match["exponent"].lstrip("+-").lstrip("0")
    exponent = int(digits or "0") if len(digits) <= _MAX_INT64_DIGITS else _MAX_INT64 + 2
    if match["exponent"].startswith("-"):
        exponent = -exponent
    if not _MIN_INT64 <= exponent <= _MAX_INT64:
        raise QuantityError(text, "its exponent is out of range")
    # apimachinery keeps the low 32 bits, so that e4294967296 stands for e0; the same figure must mean the same here.
    return (exponent + (1 << 31)) % (1 << 32) - (1 << 31)


def _binary(number: str, exponent: int) -> Fraction:
    """``number`` times two to the ``exponent``, rounded to nano and capped at int64."""
    context = _exact(number)
    amount = context.multiply(decimal.Decimal(number), decimal.Decimal(1 << exponent))
    return max(Fraction(-_MAX_INT64), min(_rounded(amount, context), Fraction(_MAX_INT64)))


def _decimal(number: str, exponent: int) -> Fraction:
    """``number`` times ten to the ``exponent``, rounded to nano."""
    context = _exact(number)
    return _rounded(context.scaleb(decimal.Decimal(number), exponent), context)


def _exact(number: str) -> decimal.Context:
    """Arithmetic that keeps every digit of ``number`` and of its product with a suffix, and never overflows."""
    return decimal.Context(
        prec=len(number) + _LARGEST_EXPONENT + 32, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
    )


def _rounded(amount: decimal.Decimal, context: decimal.Context) -> Fraction:
    """``amount`` to nano, away from zero, and no further than 10**100."""
    if amount and amount.adjusted() >= _LARGEST_EXPONENT:
        return Fraction(int(math.copysign(1, amount)) * 10**_LARGEST_EXPONENT)
    context.rounding = decimal.ROUND_UP
    return Fraction(context.quantize(amount, decimal.Decimal(1).scaleb(_SMALLEST_EXPONENT)))


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
