"""Engines' errors in OpenAI's shape."""

import orjson
import pytest

from aibrix_operator.gateway import engine_errors

UNKNOWN = ("x-error-response-unknown", "true")
UNMARSHAL = ("x-error-response-unmarshal", "true")


def error(message, kind=None, code=None, param=None):
    return {"message": message, "type": kind, "code": code, "param": param}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(
            400,
            b'{"error":{"message":"bad","type":"BadRequestError","param":"n","code":40001}}',
            error("bad", "BadRequestError", 40001, "n"),
            id="nested, its integer code kept",
        ),
        pytest.param(
            404,
            b'{"object":"error","message":"no model","type":"NotFoundError","param":null,"code":404}',
            error("no model", "NotFoundError", 404),
            id="flat",
        ),
        pytest.param(422, b'{"detail":"missing body"}', error("missing body"), id="FastAPI's"),
        pytest.param(
            422,
            b'{"detail":[{"loc":["body"]}]}',
            error('[{"loc":["body"]}]'),
            id="FastAPI's list",
        ),
        pytest.param(429, b'{"error":"slow down"}', error("slow down"), id="a text under error"),
        pytest.param(503, b"overloaded", error("overloaded"), id="plain text"),
        pytest.param(502, b"", error("unknown response"), id="nothing"),
        pytest.param(400, b"{}", error("unknown response"), id="no message"),
        pytest.param(400, b'{"error":{"message":null}}', error("unknown response"), id="a null message"),
        pytest.param(400, b"[1, 2]", error("[1, 2]"), id="JSON that is no object"),
        pytest.param(400, b"\xff\xfe", error("\ufffd\ufffd"), id="no text at all"),
    ],
)
def test_an_error_keeps_its_status_and_what_it_says(status, body, expected):
    shaped = engine_errors.shape(status, body)
    assert shaped.status == status
    assert shaped.headers == (("content-type", "application/json"), UNKNOWN)
    assert orjson.loads(shaped.body) == {"error": expected}


def test_what_an_engine_says_about_its_inside_is_not_told():
    shaped = engine_errors.shape(500, b'{"error":{"message":"CUDA at 0x7f"}}')
    assert (shaped.status, orjson.loads(shaped.body)["error"]) == (500, error("Internal server error", "api_error"))


def test_a_key_that_an_engine_refuses_is_told_as_the_gateways_own():
    shaped = engine_errors.shape(401, b"")
    expected = error("Incorrect API key provided", "authentication_error", "invalid_api_key", "api_key")
    assert (shaped.status, orjson.loads(shaped.body)["error"]) == (401, expected)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"code":422,"message":"x"}', 422),
        (b'{"code":"429","message":"x"}', 429),
        (b'{"error":{"code":404,"message":"x"}}', 404),
        (b'{"code":200,"message":"x"}', 500),
        (b'{"code":100,"message":"x"}', 500),
        (b'{"code":4000,"message":"x"}', 500),
        (b'{"code":"model_gone","message":"x"}', 500),
        (b'{"code":true,"message":"x"}', 500),
        (b'{"message":"x"}', 500),
    ],
)
def test_a_failure_that_passes_for_a_200_gets_the_status_that_its_code_names(body, status):
    shaped = engine_errors.shape(200, body)
    assert (shaped.status, UNKNOWN in shaped.headers) == (status, True)
    assert orjson.loads(shaped.body)["error"]["message"] == "x"


@pytest.mark.parametrize("body", [b"oops", b"", b"{", b"null"])
def test_a_200_that_is_no_json_is_a_500(body):
    shaped = engine_errors.shape(200, body)
    assert (shaped.status, UNMARSHAL in shaped.headers) == (500, True)
    assert set(orjson.loads(shaped.body)["error"]) == {"message", "type", "code", "param"}
