"""Tokens of a prompt are estimated by what the model's engines counted of others."""

import pytest

from aibrix_operator.gateway.token_sizes import TokenSizes


def learned(*prompts, model="m"):
    sizes = TokenSizes()
    for size, tokens in prompts:
        sizes.learn(model, size, tokens)
    return sizes


def test_a_model_that_nothing_is_known_of_has_four_bytes_a_token():
    assert [TokenSizes().tokens("m", size) for size in (0, 1, 4, 5, 4000)] == [0, 1, 1, 2, 1000]


def test_after_some_prompts_it_is_what_engines_count():
    sizes = learned(*[(4000, 2000)] * 50)
    assert sizes.tokens("m", 4000) == pytest.approx(2000, rel=0.01)
    assert sizes.tokens("another", 4000) == 1000


def test_one_odd_prompt_decides_nothing():
    assert learned((300, 300)).tokens("m", 4000) < 1700


def test_what_was_learned_gives_way_to_what_is_new():
    sizes = learned(*[(4000, 2000)] * 1000, *[(4000, 1000)] * 1000)
    assert sizes.tokens("m", 4000) == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        pytest.param(255, 100, id="mostly the template"),
        pytest.param(1_000_000, 1_000, id="an image in base64"),
        pytest.param(400, 0, id="nothing counted"),
        pytest.param(400, 401, id="more tokens than bytes"),
    ],
)
def test_what_tells_nothing_of_text_is_not_learned_from(size, tokens):
    assert learned((size, tokens)).tokens("m", 4000) == 1000


def test_a_model_that_is_gone_leaves_nothing():
    sizes = learned((4000, 2000))
    sizes.drop("m")
    sizes.drop("m")
    assert sizes.tokens("m", 4000) == 1000
