"""The gRPC server of what Envoy reports to: the access log's service, and the one for engines' errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import grpc
from envoy.service.accesslog.v3 import als_pb2_grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc

from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.envoy.access_log import AccessLog, Sink
from aibrix_operator.gateway.envoy.ext_proc import ErrorShaper

_LARGEST_MESSAGE_BYTES: Final = 64 << 20
_STOP_S: Final = 1.0
"""Envoy's log streams end with Envoy; this is for one that outlives us."""


@dataclass(frozen=True, slots=True)
class Reports:
    """The running services, for their counts."""

    log: AccessLog
    shaper: ErrorShaper


@asynccontextmanager
async def serve(sink: Sink, address: Address) -> AsyncIterator[Reports]:
    """Listen at ``address`` while the context is open. RuntimeError when it is taken."""
    options = [("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=options)
    reports = Reports(AccessLog(sink), ErrorShaper())
    als_pb2_grpc.add_AccessLogServiceServicer_to_server(reports.log, server)
    external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(reports.shaper, server)
    server.add_insecure_port(str(address))
    await server.start()
    try:
        yield reports
    finally:
        await server.stop(_STOP_S)
