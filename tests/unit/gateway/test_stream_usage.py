"""What a stream's usages come to, from the texts that Envoy kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway.envoy.stream_usage import members

OPENAI = '"usage": {"prompt_tokens": 7, "total_tokens": 10}'


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(OPENAI, {"prompt_tokens": 7, "total_tokens": 10}, id="one"),
        pytest.param(OPENAI + ', "x": [1]}', {"prompt_tokens": 7, "total_tokens": 10}, id="what follows it"),
        pytest.param('"usage":{"a":1,"b":2}\n"usage":{"b":3}', {"a": 1, "b": 3}, id="the later wins"),
        pytest.param('"usage":{"a":1}\n"usage":{"a":null}', {"a": 1}, id="a null takes nothing away"),
        pytest.param('"usage":{"a":1}\n"usage":{"a":', {"a": 1}, id="the last is cut"),
        pytest.param('"usage":' + '{"a":' * 1000, {}, id="cut in the depth"),
        pytest.param('"usage":[1]', {}, id="no object"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_texts_are_read_as_far_as_they_go(texts, expected):
    assert members(texts) == expected


@given(st.text())
def test_whatever_was_kept_is_read_without_an_error(texts):
    members(texts)


@given(st.dictionaries(st.text(), st.integers()), st.text(st.characters(categories=("L", "N", "P"))))
def test_a_whole_usage_is_found_whatever_follows_it_in_its_line(usage, behind):
    assert members(f'"usage": {json.dumps(usage)}{behind}') == usage
