"""The id of a request."""

import uuid

import pytest

from aibrix_operator.gateway.parsing.identity import request_id

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.acceptance("GW-18")
def test_a_trace_names_the_request():
    assert request_id(f"00-{TRACE}-b7ad6b7169203331-01") == TRACE


@pytest.mark.acceptance("GW-18")
@pytest.mark.parametrize(
    "header",
    [
        None, "", f"00-{TRACE}-b7ad6b7169203331", f"00-{TRACE}-b7ad6b7169203331-01-x", f"00-{TRACE[1:]}-b7ad-01",
        f"00-{TRACE[1:]}g-b7ad-01", "---", f"00-{TRACE}\n-b7ad-01",
    ],
)  # fmt: skip
def test_what_is_no_trace_gives_a_fresh_uuid(header):
    found = {request_id(header), request_id(header)}
    assert len(found) == 2
    assert all(str(uuid.UUID(each, version=4)) == each for each in found)
