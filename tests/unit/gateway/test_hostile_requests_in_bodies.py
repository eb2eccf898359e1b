"""Ten thousand requests that mean no good, of which most are told here: bodies."""

from collections import Counter
from contextlib import contextmanager
from random import Random

import pytest
from gateway_asks import BOUNDARY, form, part, question
from hostile import NAMES, PATHS, any_object, check, gateway, tampered
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def open_gateway():
    return gateway()


@contextmanager
def noted(seed):
    """A failure tells the seed that it can be had again with."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


def test_any_object_is_refused_or_goes_to_the_model_that_a_full_parse_gives(open_gateway):
    routed = Counter()
    for seed in range(8000):
        random = Random(seed)
        body, path, name = any_object(random), random.choice(PATHS), random.choice(["ann", "nobody", ""])
        with noted(seed):
            routed[check(open_gateway, question(body.encode(), path=path, user=name))] += 1
    assert routed.keys() >= set(NAMES)


def test_a_good_body_that_was_tampered_with_is_refused_or_goes_to_the_model_that_a_full_parse_gives(open_gateway):
    routed = Counter()
    for seed in range(8000):
        body = tampered(Random(seed))
        with noted(seed):
            routed[check(open_gateway, question(body))] += 1
    assert min(routed["m"], routed[None]) > 500


@settings(max_examples=300)
@given(body=st.binary(max_size=200), path=st.sampled_from(PATHS))
def test_any_bytes_are_refused(open_gateway, body, path):
    assert check(open_gateway, question(body, path=path, content_type="application/json")) is None


FIELD = st.tuples(st.sampled_from(["model", "stream", "file", "", "é"]), st.sampled_from([*NAMES, "1", "nobody", ""]))


@settings(max_examples=700)
@given(
    fields=st.lists(FIELD, max_size=5),
    junk=st.binary(max_size=20),
    at=st.integers(0, 400),
    boundary=st.sampled_from([BOUNDARY, BOUNDARY, BOUNDARY, "", "é", "\u20ac", "b" * 300, '"', "a;b=c"]),
)
def test_any_form_is_refused_or_goes_to_its_model(open_gateway, fields, junk, at, boundary):
    body = form(*(part(name, value) for name, value in fields))
    body = body[:at] + junk + body[at:]
    content_type = f"multipart/form-data; boundary={boundary}"
    asked = question(body, path="/v1/audio/transcriptions", content_type=content_type)
    routed = check(open_gateway, asked, is_form=True)
    assert routed is None or routed.encode() in body


@pytest.mark.parametrize("name", NAMES)
def test_good_requests_among_them_are_forwarded(open_gateway, name):
    assert check(open_gateway, question({"model": name, "messages": [{"content": "x"}]})) == name
