"""Addresses, as they are written on the command line."""

import pytest

from aibrix_operator.gateway.address import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", Address("127.0.0.1", 80)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:8080", Address("::1", 8080)),
        ("unix:/run/gateway/a.sock", Address(path="/run/gateway/a.sock")),
    ],
)
def test_an_address_is_read_and_written_in_one_form(text, address):
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "80", ":80", "host:", "host:http", "host:65536", "unix:relative", "host:²"])
def test_what_is_no_address_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match="address"):
        Address.parse(text)
