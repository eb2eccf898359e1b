"""What an end comes to: one row an end, as a whole value."""

import pytest
from traffic_builders import request

from aibrix_operator.gateway.accounting import Account, account
from aibrix_operator.gateway.request import Api
from aibrix_operator.gateway.settlement import Ended
from aibrix_operator.gateway.strategies.base import Usage

OK = "gateway_request_success"


def ended(status=200, *flags, first_byte_s=0.1, response_bytes=1000, **fields):
    return Ended("lease", status, frozenset(flags), 1.0, first_byte_s, 10, response_bytes, **fields)


def no_answer(status=0, *flags):
    return ended(status, *flags, first_byte_s=None, response_bytes=0)


USED = {"prompt_tokens": 30, "completion_tokens": 50, "total_tokens": 80}
CHARGED = Usage(30, 50, 80)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(ended(**USED), Account(True, OK, 200, CHARGED), id="answered"),
        pytest.param(ended(201, **USED), Account(True, OK, 201, CHARGED), id="201-is-success"),
        pytest.param(ended(204, response_bytes=0, first_byte_s=None), Account(True, OK, 204), id="204-is-success"),
        pytest.param(ended(400), Account(False, "response_headers_fail", 400), id="refused-by-the-engine"),
        pytest.param(ended(500, "UC"), Account(False, "response_headers_fail", 500), id="500-of-the-engine"),
        pytest.param(ended(503, "UF"), Account(False, "no_response_err", 503), id="no-connection"),
        pytest.param(ended(504, "UT"), Account(False, "no_response_err", 504), id="engine-too-slow"),
        pytest.param(no_answer(), Account(False, "no_response_err", 500), id="nothing-at-all"),
        pytest.param(ended(200, "UC"), Account(False, "response_body_fail", 200), id="upstream-reset-in-mid-stream"),
        pytest.param(ended(200, "UC", **USED), Account(False, "response_body_fail", 200, CHARGED), id="reset-but-told"),
        pytest.param(
            no_answer(0, "DC"),
            Account(False, "client_cancelled_eof", 499),
            id="client-left-before-the-answer",
            marks=pytest.mark.acceptance("GW-117"),
        ),
        pytest.param(
            ended(200, "DC", **USED),
            Account(True, "context_cancelled", 200, CHARGED),
            id="client-left-after-its-first-bytes",
            marks=pytest.mark.acceptance("GW-117"),
        ),
        pytest.param(ended(429, "DC"), Account(False, "response_headers_fail", 429), id="client-left-an-error"),
    ],
)
def test_an_end_is_a_success_or_a_failure_of_one_kind(end, expected):
    assert account(end, request()) == expected


@pytest.mark.acceptance("GW-116")
@pytest.mark.parametrize(
    ("told", "charged"),
    [
        pytest.param({"prompt_tokens": 10, "completion_tokens": 5}, Usage(10, 5, 15), id="no-total"),
        pytest.param(
            {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 20},
            Usage(30, 5, 35),
            id="cache-beside-input",
        ),
        pytest.param({"prompt_tokens": 10, "total_tokens": 10}, Usage(10, 0, 10), id="embedding"),
        pytest.param({"total_tokens": 9}, Usage(9, 0, 9), id="total-alone"),
        pytest.param({"total_tokens": 0, "prompt_tokens": 0, "completion_tokens": 0}, None, id="zero-is-nothing"),
        pytest.param({"prompt_tokens": 0, "completion_tokens": 0}, None, id="zeros-without-a-total"),
        pytest.param({"completion_tokens": 50, "total_tokens": 9}, Usage(0, 9, 9), id="parts-over-the-total"),
    ],
)
def test_tokens_are_the_engines_own(told, charged):
    assert account(ended(**told), request(Api.MESSAGES)).usage == charged


@pytest.mark.parametrize(
    ("end", "asked", "charged"),
    [
        pytest.param(
            ended(200, "DC", response_bytes=4001),
            {"stream": True, "prompt_bytes": 41},
            Usage(11, 21, 32, is_estimate=True),
            id="stream-left",
        ),
        pytest.param(
            ended(200, "DC", response_bytes=400_000),
            {"stream": True, "prompt_bytes": 40, "max_tokens": 7},
            Usage(10, 7, 17, is_estimate=True),
            id="never-more-than-asked-for",
        ),
        pytest.param(
            ended(200, "DC", response_bytes=400),
            {"prompt_bytes": 40},
            Usage(10, 100, 110, is_estimate=True),
            id="whole-answer-left",
        ),
        pytest.param(
            ended(200, response_bytes=2000),
            {"stream": True, "prompt_bytes": 40},
            Usage(10, 10, 20, is_estimate=True),
            id="engine-that-told-nothing",
        ),
        pytest.param(
            ended(200, "DC", response_bytes=1200, prompt_tokens=9, completion_tokens=1),
            {"api": Api.MESSAGES, "stream": True, "prompt_bytes": 40},
            Usage(9, 10, 19, is_estimate=True),
            id="input-told-output-not-yet",
        ),
        pytest.param(
            ended(200, "DC", response_bytes=4000, **USED),
            {"stream": True},
            CHARGED,
            id="continuous-figures-are-not-doubted",
        ),
        pytest.param(
            ended(response_bytes=5_000_000),
            {"api": Api.IMAGES, "prompt_bytes": 40},
            Usage(10, 0, 10, is_estimate=True),
            id="an-image-is-no-text",
        ),
        pytest.param(ended(response_bytes=500), {"api": Api.TRANSCRIPTIONS}, None, id="sound-without-a-prompt"),
        pytest.param(ended(**USED), {"api": Api.COUNT_TOKENS, "prompt_bytes": 40}, None, id="counting-costs-nothing"),
        pytest.param(ended(), {"api": Api.TOKENIZE, "prompt_bytes": 40}, None, id="tokenizing-costs-nothing"),
        pytest.param(no_answer(0, "DC"), {"prompt_bytes": 40}, None, id="left-before-the-answer"),
        pytest.param(ended(500), {"prompt_bytes": 40}, None, id="failure"),
        pytest.param(ended(200, "UC"), {"prompt_bytes": 40, "stream": True}, None, id="broken-off-by-the-engine"),
    ],
)
def test_an_estimate_is_charged_only_for_what_reached_the_client(end, asked, charged):
    found = account(end, request(**asked))
    assert found.usage == charged
    assert found.tokens == (charged and charged.total)
