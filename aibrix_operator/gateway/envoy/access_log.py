"""The gRPC service that Envoy reports to: log entries in, settlement entries out.

Entries are batched on one long stream a worker of Envoy's. What is odd about one is counted, and never ends the stream:
a request that could not be settled gives its lease back by expiry.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeAlias

from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.accesslog.v3 import als_pb2

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.envoy import listener, stream_usage, usage
from aibrix_operator.gateway.settlement import Ended, LogEntry, StillRunning

Sink: TypeAlias = Callable[[LogEntry], None]
"""Is given every entry, in the event loop."""

_log = logging.getLogger(__name__)
_FLAGS: Final = {
    "failed_local_healthcheck": "LH",
    "no_healthy_upstream": "UH",
    "upstream_request_timeout": "UT",
    "local_reset": "LR",
    "upstream_remote_reset": "UR",
    "upstream_connection_failure": "UF",
    "upstream_connection_termination": "UC",
    "upstream_overflow": "UO",
    "no_route_found": "NR",
    "delay_injected": "DI",
    "fault_injected": "FI",
    "rate_limited": "RL",
    "unauthorized_details": "UAEX",
    "rate_limit_service_error": "RLSE",
    "downstream_connection_termination": "DC",
    "upstream_retry_limit_exceeded": "URX",
    "stream_idle_timeout": "SI",
    "invalid_envoy_request_headers": "IH",
    "downstream_protocol_error": "DPE",
    "upstream_max_stream_duration_reached": "UMSDR",
    "response_from_cache_filter": "RFCF",
    "no_filter_config_found": "NFCF",
    "duration_timeout": "DT",
    "upstream_protocol_error": "UPE",
    "no_cluster_found": "NC",
    "overload_manager": "OM",
    "dns_resolution_failure": "DF",
    "downstream_remote_reset": "DR",
}
"""Field of ``ResponseFlags`` → Envoy's short form."""
_NO_FLAGS: Final[frozenset[str]] = frozenset()
_MOST_TOKENS: Final = 1 << 40
"""More than this is no count of tokens."""


class AccessLog:
    """``envoy.service.accesslog.v3.AccessLogService``"""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.received = 0
        self.odd = 0
        """Entries that could not be read or handled."""

    async def StreamAccessLogs(self, requests: AsyncIterator[Any], context: Any) -> Any:
        """Any: generated messages."""
        async for batch in requests:
            for entry in batch.http_logs.log_entry:
                self.take(entry)
        return als_pb2.StreamAccessLogsResponse()

    def take(self, entry: Any) -> None:
        """Hand one entry on. Never raises: the entries behind it are other requests'."""
        self.received += 1
        try:
            told = read(entry)
            if told is not None:
                self._sink(told)
        except Exception:  # whatever is wrong with it, it is one entry
            self.odd += 1
            _log.exception("an entry of Envoy's access log could not be settled")


def read(entry: Any) -> LogEntry | None:
    """One ``HTTPAccessLogEntry``. None: it says nothing that concerns us."""
    common = entry.common_properties
    lease = entry.request.request_headers.get(headers.LEASE, "")
    if common.access_log_type == accesslog_pb2.DownstreamPeriodic:
        return StillRunning(lease) if lease else None
    tokens = _tokens(common.metadata.filter_metadata)
    return Ended(
        lease,
        status=entry.response.response_code.value,
        flags=_flags(common.response_flags) if common.HasField("response_flags") else _NO_FLAGS,
        duration_s=_seconds(common.duration),
        first_byte_s=_first_byte_s(common.custom_tags.get(listener.FIRST_BYTE_TAG, "")),
        request_bytes=entry.request.request_body_bytes,
        response_bytes=entry.response.response_body_bytes,
        upstream=_address(common.upstream_remote_address) if common.HasField("upstream_remote_address") else "",
        prompt_tokens=_first(tokens, usage.PROMPT, usage.INPUT),
        completion_tokens=_first(tokens, usage.COMPLETION, usage.OUTPUT),
        total_tokens=tokens.get(usage.TOTAL),
        cached_tokens=_sum(tokens, usage.CACHE_WRITTEN, usage.CACHE_READ),
    )


def _tokens(metadata: Any) -> dict[str, int]:
    """Key of ``usage`` → count, of those that are counts. Read key by key: a map's ``items()`` takes twice as long."""
    if usage.NAMESPACE not in metadata:
        return {}
    fields = metadata[usage.NAMESPACE].fields
    if stream_usage.TEXTS in fields:
        told = stream_usage.members(fields[stream_usage.TEXTS].string_value)
        return {usage.MEMBERS[name]: int(n) for name, n in told.items() if name in usage.MEMBERS and _is_count(n)}
    found: dict[str, int] = {}
    for key in fields:
        if key in usage.COUNTS:
            value = fields[key]
            count = value.number_value
            if 0 < count < _MOST_TOKENS or (count == 0 and value.HasField("number_value")):
                found[key] = int(count)
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS


def _first(tokens: dict[str, int], name: str, alias: str) -> int | None:
    """Zero is a value; only absence selects the alias."""
    return tokens.get(name, tokens.get(alias))


def _sum(tokens: dict[str, int], *names: str) -> int | None:
    found = [tokens[name] for name in names if name in tokens]
    return sum(found) if found else None


def _flags(flags: Any) -> frozenset[str]:
    return frozenset(_FLAGS.get(field.name, field.name) for field, _ in flags.ListFields())


def _seconds(duration: Any) -> float:
    return float(duration.seconds + duration.nanos / 1e9)


def _first_byte_s(text: str) -> float | None:
    """The tag is ``-`` when there was no such byte."""
    return int(text) / 1e6 if text.isdigit() else None


def _address(address: Any) -> str:
    socket = address.socket_address
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    return f"{host}:{socket.port_value}" if host else ""
