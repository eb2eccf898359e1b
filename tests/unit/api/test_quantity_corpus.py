"""Every form in quantities.txt gets the verdict and the value that apimachinery gives it."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from aibrix_operator.api.quantity import QuantityError, parse_quantity

CORPUS = [
    line.split("\t")
    for line in (Path(__file__).parent / "quantities.txt").read_text(encoding="ascii").splitlines()
    if line and not line.startswith("#")
]
LEGAL = [(json.loads(columns[1]), Fraction(columns[2])) for columns in CORPUS if columns[0] == "legal"]
ILLEGAL = [json.loads(columns[1]) for columns in CORPUS if columns[0] == "illegal"]


def test_the_corpus_has_enough_forms_of_both_verdicts_and_none_twice():
    assert {columns[0] for columns in CORPUS} == {"legal", "illegal"}
    assert len(CORPUS) == len({columns[1] for columns in CORPUS}) >= 300
    assert min(len(LEGAL), len(ILLEGAL)) >= 140


@pytest.mark.parametrize(("text", "value"), LEGAL, ids=[repr(text) for text, _ in LEGAL])
def test_a_legal_form_has_its_exact_value(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ILLEGAL, ids=[repr(text) for text in ILLEGAL])
def test_an_illegal_form_is_refused_by_name_and_reason(text):
    with pytest.raises(QuantityError) as refused:
        parse_quantity(text)
    assert refused.value.text == text
    assert refused.value.reason
    assert str(refused.value) == f"{json.dumps(text, ensure_ascii=False)} is not a quantity: {refused.value.reason}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "it is empty", id="empty"),
        pytest.param("1,5", "it must be a decimal number followed by a suffix", id="comma"),
        pytest.param("1GiB", "it must be a decimal number followed by a suffix", id="stray letter"),
        pytest.param("1K", '"K" is not one of its suffixes', id="capital kilo"),
        pytest.param("1e", '"e" is not one of its suffixes', id="exponent without digits"),
        pytest.param("1e9223372036854775808", "its exponent is out of range", id="exponent beyond int64"),
        pytest.param("1e" + "9" * 5000, "its exponent is out of range", id="exponent of 5000 digits"),
        pytest.param("Ei", "its number has no digits", id="binary suffix alone"),
        pytest.param("e-10", "its number has no digits", id="exponent alone"),
    ],
)
def test_the_reason_says_what_is_wrong(text, reason):
    with pytest.raises(QuantityError) as refused:
        parse_quantity(text)
    assert refused.value.reason == reason


def test_an_error_repeats_only_the_beginning_of_an_endless_text():
    with pytest.raises(QuantityError) as refused:
        parse_quantity("x" * 100_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("1e99", 10**99, id="the largest power that is read exactly"),
        pytest.param("1e100", 10**100, id="the cap itself"),
        pytest.param("7e999999999", 10**100, id="a billion digits"),
        pytest.param("-7e999999999", -(10**100), id="below zero"),
        pytest.param("9" * 6000, 10**100, id="more digits than Python reads"),
        pytest.param("0" * 6000 + "7", 7, id="leading zeros do not count"),
        pytest.param("0e999999999", 0, id="zero stays zero"),
        pytest.param("1e-999999999", Fraction(1, 10**9), id="rounded up to nano"),
        pytest.param("0." + "0" * 6000 + "1", Fraction(1, 10**9), id="a far digit rounds up to nano"),
        pytest.param("1." + "0" * 6000 + "1Ki", 1024 + Fraction(1, 10**9), id="a far digit of a binary quantity too"),
    ],
)
def test_figures_beyond_reason_are_read_without_their_digits(text, value):
    assert parse_quantity(text) == value
