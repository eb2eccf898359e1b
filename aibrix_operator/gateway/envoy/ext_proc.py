"""The gRPC service that Envoy hands an engine's failed answer to, and nothing else.

A composite filter makes the call, for answers with an error's status and for a 200 that is no answer: successes never
come here. The pure part is :mod:`aibrix_operator.gateway.engine_errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire

from aibrix_operator.gateway import engine_errors


class ErrorShaper:
    """``envoy.service.ext_proc.v3.ExternalProcessor``"""

    def __init__(self) -> None:
        self.shaped = 0
        """Answers that were changed."""

    async def Process(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """One stream an answer: its headers, then, when there is one, its whole body. Any: generated messages."""
        status = 500
        async for request in requests:
            if request.HasField("response_headers"):
                status = _status(request.response_headers.headers)
                if not request.response_headers.end_of_stream:
                    yield wire.ProcessingResponse(response_headers=wire.HeadersResponse())
                    continue
                common = self._change(status, b"")
                common.status = wire.CommonResponse.CONTINUE_AND_REPLACE
                yield wire.ProcessingResponse(response_headers=wire.HeadersResponse(response=common))
            elif request.HasField("response_body"):
                common = self._change(status, request.response_body.body)
                yield wire.ProcessingResponse(response_body=wire.BodyResponse(response=common))

    def _change(self, status: int, body: bytes) -> Any:
        shaped = engine_errors.shape(status, body)
        self.shaped += 1
        # With the length left out Envoy would send the engine's, which is of another body.
        told = [*shaped.headers, (":status", str(shaped.status)), ("content-length", str(len(shaped.body)))]
        mutation = wire.HeaderMutation(
            set_headers=[
                base_pb2.HeaderValueOption(
                    header=base_pb2.HeaderValue(key=name, raw_value=value.encode("latin-1")),
                    append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
                )
                for name, value in told
            ],
            remove_headers=["content-encoding", "transfer-encoding"],
        )
        return wire.CommonResponse(header_mutation=mutation, body_mutation=wire.BodyMutation(body=shaped.body))


def _status(answer: Any) -> int:
    for header in answer.headers:
        if header.key == ":status":
            text = header.raw_value.decode("ascii", "replace") or header.value
            return int(text) if text.isdigit() else 500
    return 500
