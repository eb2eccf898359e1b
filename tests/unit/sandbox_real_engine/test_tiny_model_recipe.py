"""The tiny model's recipe on the host side: vocabulary, and how the maker is started. The weights need torch."""

import itertools
import sys
from pathlib import Path

import pytest

from aibrix_operator.sandbox.real_engine import tiny_model

MAKER = """\
#!{python}
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir()
(out / "seed").write_text(sys.argv[sys.argv.index("--seed") + 1])
with (out.parent / "runs").open("a") as runs:
    print("run", file=runs)
{then}
"""


def maker(folder: Path, then: str = "") -> Path:
    script = folder / "python"
    script.write_text(MAKER.format(python=sys.executable, then=then))
    script.chmod(0o755)
    return script


def bpe(text: str) -> list[int]:
    """Byte-level BPE by the book: again and again the pair of the lowest rank is merged."""
    tokens, merges, _ = tiny_model.vocabulary()
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    symbols = [tiny_model.byte_alphabet()[byte] for byte in text.encode()]
    while True:
        pairs = [(ranks[pair], at) for at, pair in enumerate(itertools.pairwise(symbols)) if pair in ranks]
        if not pairs:
            return [tokens[symbol] for symbol in symbols]
        _, at = min(pairs)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


def test_every_byte_has_a_printable_character_of_its_own() -> None:
    alphabet = tiny_model.byte_alphabet()
    assert set(alphabet) == set(range(256))
    assert len(set(alphabet.values())) == 256
    assert all(character.isprintable() and not character.isspace() for character in alphabet.values())


def test_every_text_has_tokens_and_merges_only_join_what_exists() -> None:
    tokens, merges, _ = tiny_model.vocabulary()
    assert sorted(tokens.values()) == list(range(len(tokens)))
    assert set(tiny_model.byte_alphabet().values()) <= set(tokens)
    assert all({left, right, left + right} <= set(tokens) for left, right in merges)


def test_a_word_of_the_vocabulary_is_one_token() -> None:
    _, _, words = tiny_model.vocabulary()
    assert [bpe(f" {word}") for word in tiny_model.WORDS] == [[token] for token in words]


def test_the_special_tokens_come_first_where_the_configuration_names_them() -> None:
    tokens, _, _ = tiny_model.vocabulary()
    assert [tokens[token] for token in tiny_model.SPECIAL_TOKENS] == [0, 1, 2]


def test_each_seed_has_a_folder_of_its_own_and_is_made_once(tmp_path: Path) -> None:
    python = maker(tmp_path)
    one = tiny_model.ensure_model(python, tmp_path / "models", 1)
    two = tiny_model.ensure_model(python, tmp_path / "models", 2)

    assert tiny_model.ensure_model(python, tmp_path / "models", 1) == one
    assert one != two
    assert [(folder / "seed").read_text() for folder in (one, two)] == ["1", "2"]
    assert (tmp_path / "models" / "runs").read_text().splitlines() == ["run", "run"]


def test_a_maker_that_fails_half_way_leaves_no_model_and_says_why(tmp_path: Path) -> None:
    python = maker(tmp_path, "sys.exit('no torch here')")

    with pytest.raises(tiny_model.ModelError, match=r"seed 7 could not be made \(exit code 1\):\nno torch here"):
        tiny_model.ensure_model(python, tmp_path / "models", 7)

    assert [path.name for path in (tmp_path / "models").iterdir()] == ["runs"]
