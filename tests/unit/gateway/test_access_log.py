"""Entries of Envoy's access log as settlement entries."""

import pytest
from envoy.data.accesslog.v3 import accesslog_pb2
from google.protobuf.json_format import ParseDict

from aibrix_operator.gateway.envoy.access_log import AccessLog, read
from aibrix_operator.gateway.settlement import Ended, StillRunning


def entry(*, lease="l", usage=None, flags=None, log_type="DownstreamEnd", tags=None, **common):
    """An ``HTTPAccessLogEntry``. ``usage``: key → number."""
    properties = {"access_log_type": log_type, "duration": "1.5s", **common}
    if usage is not None:
        properties["metadata"] = {"filter_metadata": {"aibrix.usage": usage}}
    if flags is not None:
        properties["response_flags"] = flags
    if tags is not None:
        properties["custom_tags"] = tags
    document = {
        "common_properties": properties,
        "request": {"request_headers": {"x-aibrix-lease": lease} if lease else {}, "request_body_bytes": 10},
        "response": {"response_code": 200, "response_body_bytes": 20},
    }
    return ParseDict(document, accesslog_pb2.HTTPAccessLogEntry())


def test_the_end_of_a_request_is_told_whole():
    told = read(
        entry(
            usage={"prompt": 7, "completion": 3, "total": 10},
            flags={"upstream_connection_termination": True, "unauthorized_details": {}},
            tags={"first_byte_us": "250000"},
            upstream_remote_address={"socket_address": {"address": "10.0.0.1", "port_value": 8000}},
        )
    )
    assert told == Ended(
        "l",
        status=200,
        flags=frozenset({"UC", "UAEX"}),
        duration_s=1.5,
        first_byte_s=0.25,
        request_bytes=10,
        response_bytes=20,
        upstream="10.0.0.1:8000",
        prompt_tokens=7,
        completion_tokens=3,
        total_tokens=10,
    )


def test_what_an_entry_leaves_out_is_nothing():
    assert read(accesslog_pb2.HTTPAccessLogEntry()) == Ended("", status=0, flags=frozenset(), duration_s=0.0)


@pytest.mark.acceptance("GW-116")
@pytest.mark.parametrize(
    ("usage", "total"),
    [
        pytest.param({"input": 10, "output": 5}, 15, id="Anthropic's, which has no total"),
        pytest.param({"input": 10, "output": 5, "cache_written": 2, "cache_read": 4}, 21, id="with its cache"),
        pytest.param({"input": 10, "output": 5, "total": 15}, 15, id="of the responses API"),
        pytest.param({"prompt": 0, "input": 10, "completion": 0, "output": 5}, 0, id="zero is a value"),
        pytest.param({"total": 0}, 0, id="a total of zero"),
        pytest.param({}, None, id="nothing"),
        pytest.param({"total": "ten", "prompt": -1, "completion": None}, None, id="no counts"),
        pytest.param({"total": 1e300}, None, id="out of all measure"),
    ],
)
def test_tokens_are_added_up_as_each_api_tells_them(usage, total):
    assert read(entry(usage=usage)).total() == total


def test_a_periodic_entry_renews_its_lease_and_says_nothing_without_one():
    assert read(entry(log_type="DownstreamPeriodic")) == StillRunning("l")
    assert read(entry(log_type="DownstreamPeriodic", lease="")) is None


def test_a_flag_of_a_newer_envoy_is_told_by_its_long_name():
    assert read(entry(flags={"upstream_remote_reset": True})).flags == {"UR"}
    assert read(entry(flags={"dns_resolution_failure": True})).flags == {"DF"}


@pytest.mark.parametrize("text", ["-", "", "-1", "soon"])
def test_a_first_byte_that_never_came_has_no_time(text):
    assert read(entry(tags={"first_byte_us": text} if text else None)).first_byte_s is None


def test_an_entry_that_cannot_be_settled_is_counted_and_those_behind_it_are():
    settled = []

    def sink(told):
        if told.lease == "odd":
            raise RuntimeError("no such lease")
        settled.append(told.lease)

    log = AccessLog(sink)
    for lease in ("a", "odd", "b"):
        log.take(entry(lease=lease))
    assert (settled, log.received, log.odd) == (["a", "b"], 3, 1)
