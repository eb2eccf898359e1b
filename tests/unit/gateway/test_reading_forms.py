"""Multipart forms of the audio paths."""

import pytest
from gateway_asks import BOUNDARY, chat, form, parsed, part

from aibrix_operator.gateway.parsing import forms
from aibrix_operator.gateway.request import Request
from aibrix_operator.gateway.verdict import Refuse

PATH = "/v1/audio/transcriptions"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
SOUND = part("file", b"\x00\xffRIFF--\r\n--fron", filename="a.wav")


def read(body, content_type=FORM, path=PATH):
    return parsed(body, path=path, content_type=content_type)


@pytest.mark.acceptance("GW-10")
@pytest.mark.parametrize("path", [PATH, "/v1/audio/translations"])
@pytest.mark.parametrize(("stream", "is_stream"), [("1", True), ("true", True), ("0", False), ("True", False)])
def test_a_form_is_routed_by_its_model_and_streams_if_it_says_so(path, stream, is_stream):
    request = read(form(SOUND, part("model", "org/whisper"), part("stream", stream)), path=path)
    assert isinstance(request, Request)
    assert (request.model, request.stream, request.text_of(), request.prompt_bytes) == ("org/whisper", is_stream, "", 0)


@pytest.mark.acceptance("GW-10")
@pytest.mark.parametrize("content_type", ["application/json", "", "multipart/mixed; boundary=x"])
def test_audio_as_json_is_refused(content_type):
    refused = read(b'{"model":"m"}', content_type)
    assert isinstance(refused, Refuse)
    assert (refused.status, refused.message) == (400, "audio requests must use multipart/form-data content-type")


@pytest.mark.acceptance("GW-10")
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(part("model", "m")), "multipart/form-data"),
        (form(part("model", "m")), "multipart/form-data; boundary=other"),
        (form(part("model", "m"), end=b""), FORM),
        (form(part("model", "m"), end=f"--{BOUNDARY}".encode()), FORM),
        (b"no form", FORM),
        (b"", FORM),
        (form(part("model", b"\xff")), FORM),
        (form(part("model", "m")), f"multipart/form-data; boundary={'b' * 300}"),
        (form(part("model", "m")), "multipart/form-data; boundary=\u20ac"),
    ],
    ids=["no boundary", "another", "no end", "half an end", "no form", "empty", "latin-1", "long", "odd"],
)  # fmt: skip
def test_a_broken_form_is_refused(body, content_type):
    refused = read(body, content_type)
    assert isinstance(refused, Refuse)
    assert (refused.status, refused.headers) == (400, {"x-error-multipart-parsing": "true"})


@pytest.mark.parametrize("name", ["model", "stream"])
def test_a_field_that_is_there_twice_is_refused_because_engines_may_take_either(name):
    assert isinstance(read(form(part("model", "m"), part(name, "a"), part(name, "b"))), Refuse)


def test_a_file_is_no_field_whatever_it_is_named():
    assert read(form(part("model", "m"), part("model", "other", filename="x"))).model == "m"


def test_a_form_without_model_asks_for_the_empty_name():
    assert read(form(SOUND)).model == ""


def test_a_field_that_is_too_long_or_too_many_parts_are_refused():
    assert isinstance(read(form(part("model", "m" * (forms.LONGEST_FIELD_BYTES + 1)))), Refuse)
    assert isinstance(read(form(*[part("x", "")] * (forms.MOST_PARTS + 1))), Refuse)
    assert read(form(*[part("x", "")] * (forms.MOST_PARTS - 1), part("model", "m"))).model == "m"


def test_headers_of_a_part_come_in_any_case_and_order():
    extra = "X-Other: 1\r\nCONTENT-TYPE: text/plain\r\n"
    assert read(form(part("model", "m", extra=extra))).model == "m"


def test_other_paths_do_not_care_for_the_content_type():
    assert parsed(chat(), content_type="text/plain").model == "m"
