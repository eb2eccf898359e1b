"""Ten thousand requests that mean no good, of which the rest are told here: headers, paths and methods."""

import pytest
from gateway_asks import CHAT, chat
from hostile import PATHS, check, gateway
from hypothesis import given, settings
from hypothesis import strategies as st

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.exchange import Question


@pytest.fixture(scope="module")
def open_gateway():
    return gateway()


VALUES = st.one_of(
    st.text(st.characters(max_codepoint=255), max_size=40),
    st.sampled_from(
        [
            "random", "least-request", "random,random", "x" * 5000, "least-request:2,throughput", "least-request:0",
            "no-such", "auto", "AUTO", "zone=a", "zone==", "zone in (a", "!zone", "10.9.9.9:1", "MTAuOS45Ljk6MQ==",
            "=", ",", ":", "a:" + "9" * 5000, "%0d%0aevil: 1", "\r\nevil: 1", "\x00", "00-" + "a" * 32 + "-b-01",
            "00-" + "é" * 32 + "-b-1",
        ]
    ),
)  # fmt: skip
SPOOFED = [*headers.INTERNAL, "X-AIBRIX-LEASE", "Target-Pod", "host", "te"]
HEADERS = st.dictionaries(st.sampled_from([*headers.READ, *SPOOFED]), VALUES, max_size=5)


@settings(max_examples=1200)
@given(given_headers=HEADERS, name=st.sampled_from(["m", "capped", "asleep", "nobody", "bare"]))
def test_any_headers_are_refused_or_go_to_the_models_own_engines(open_gateway, given_headers, name):
    body = b'{"messages":[{"content":"x"}],"model":"%s"}' % name.encode()
    check(open_gateway, Question("POST", CHAT, given_headers, body))


@settings(max_examples=300)
@given(
    method=st.sampled_from(["GET", "HEAD", "post", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", ""]),
    path=st.one_of(st.sampled_from(PATHS), st.text(st.characters(max_codepoint=255), max_size=20)),
    given_headers=HEADERS,
)
def test_what_is_not_posted_goes_nowhere(open_gateway, method, path, given_headers):
    assert check(open_gateway, Question(method, path, given_headers, b"")) is None


@pytest.mark.acceptance("GW-23")
@pytest.mark.acceptance("GW-24")
@pytest.mark.parametrize("name", SPOOFED)
def test_a_header_that_only_we_may_say_changes_nothing(open_gateway, name):
    question = Question("POST", CHAT, {name: "10.9.9.9:1"}, b'{"messages":[{"content":"x"}],"model":"m"}')
    assert check(open_gateway, question) == chat()["model"]
