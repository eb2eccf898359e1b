"""Keys that let clients in."""

import pytest
from gateway_asks import model, view
from gateway_exchanges import Gateway, error, status, told, user

from aibrix_operator.gateway.keys import KeyFileError, Keys
from aibrix_operator.gateway.limits.users import Mode

KEY = "sk-1234"


@pytest.mark.acceptance("GW-17")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"bearer {KEY}"}, 200),
        ({"authorization": f"Bearer {KEY}"}, 200),
        ({"authorization": f"  BEARER   {KEY} "}, 200),
        ({"authorization": KEY}, 401),
        ({"authorization": f"Basic {KEY}"}, 401),
        ({"authorization": f"Bearer {KEY},Bearer {KEY}"}, 401),
        ({"authorization": f"Bearer {KEY[:-1]}"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Bearer \u20ac\ud800"}, 401),
        ({"x-api-key": KEY}, 200),
        ({"x-api-key": "wrong"}, 401),
    ],
)
def test_only_who_has_the_key_may_ask(headers, expected):
    answer = Gateway(view(model()), keys=Keys({KEY: None})).ask(**{k.replace("-", "_"): v for k, v in headers.items()})
    assert status(answer) == expected
    if expected == 401:
        assert error(answer) == {
            "message": "Incorrect API key provided",
            "type": "authentication_error",
            "code": "invalid_api_key",
            "param": "api_key",
        }


def test_the_key_goes_before_everything_else():
    gateway = Gateway(view(), keys=Keys({KEY: None}), users=[user(rpm=1)])
    answer = gateway.ask(b"{", path="/no", method="GET", user="ann")
    assert status(answer) == 401
    assert gateway.watching.refusals == [("", 401, None)]
    assert told(answer)["request-id"]


def test_a_key_of_a_file_names_its_user_whatever_the_header_says():
    keys = Keys.parse(f"# keys\n\n{KEY} ann\nsk-2   Bob the builder\n")
    gateway = Gateway(view(model()), keys=keys, users=[user(rpm=1), user("eve")], mode=Mode.REQUIRE)
    assert status(gateway.ask(authorization=f"Bearer {KEY}", user="eve")) == 200
    assert status(gateway.ask(authorization=f"Bearer {KEY}", user="eve")) == 429
    assert keys.holder({"authorization": "Bearer sk-2"}).user == "Bob the builder"


def test_a_key_beyond_ascii_is_known_by_its_bytes():
    keys = Keys({"schlüssel": None})
    sent = "schlüssel".encode().decode("latin-1")
    assert keys.holder({"authorization": f"Bearer {sent}"}) is not None


@pytest.mark.parametrize("text", ["", "# none\n", "sk-1\n", f"{KEY} a\n{KEY} b\n"])
def test_a_file_that_cannot_be_used_is_refused_without_quoting_a_key(text):
    with pytest.raises(KeyFileError) as caught:
        Keys.parse(text)
    assert "sk-" not in str(caught.value)
