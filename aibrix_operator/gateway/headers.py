"""Header names on the wire, spelled once. Names are lower case, as HTTP/2 carries them."""

from __future__ import annotations

from typing import Final

# Read from the client.
AUTHORIZATION: Final = "authorization"
CONFIG_PROFILE: Final = "config-profile"
EXTERNAL_FILTER: Final = "external-filter"
SESSION_ID: Final = "x-session-id"
SESSION_KEY: Final = "x-aibrix-session-key"
STRATEGY: Final = "routing-strategy"
TRACEPARENT: Final = "traceparent"
USER: Final = "user"
API_KEY: Final = "x-api-key"
"""Anthropic's clients put their key here."""
CONTENT_TYPE: Final = "content-type"

READ: Final = (
    AUTHORIZATION,
    CONFIG_PROFILE,
    EXTERNAL_FILTER,
    SESSION_ID,
    SESSION_KEY,
    STRATEGY,
    TRACEPARENT,
    USER,
    API_KEY,
    CONTENT_TYPE,
)
"""All that Envoy hands on of a client's headers."""

# Set on the request to the engine. A client's own are removed before anything else.
LEASE: Final = "x-aibrix-lease"
"""Names the request in Envoy's access log, so that its end can be settled."""
MODEL: Final = "model"
REQUEST_ID_UPSTREAM: Final = "x-request-id"
REWRITE_PATH: Final = "x-aibrix-path"
"""The path that the engine gets, where it is not the client's."""
TARGET: Final = "target-pod"
"""To the engine: ``ip:port``, which Envoy dials. To the client: the Pod's name."""
WENT_THROUGH: Final = "x-went-into-req-headers"
SHADOW: Final = "x-aibrix-shadow"

# Set on the answer to the client.
CHOSEN_PROFILE: Final = "x-aibrix-config-profile"
REQUEST_ID: Final = "request-id"
RETRY_AFTER: Final = "retry-after"
TARGET_ADDRESS: Final = "target-pod-ip"
UPDATE_RPM: Final = "x-update-rpm"
UPDATE_TPM: Final = "x-update-tpm"

# Errors.
ERROR_BODY: Final = "x-error-request-body-processing"
ERROR_MODEL_RPS: Final = "x-error-model-rps-exceeded"
ERROR_MULTIPART: Final = "x-error-multipart-parsing"
ERROR_NO_BACKENDS: Final = "x-error-no-model-backends"
ERROR_NO_STREAM_USAGE: Final = "x-error-no-stream-options-include-usage"
ERROR_REPLICA_INFLIGHT: Final = "x-error-model-replica-inflight-exceeded"
ERROR_RESPONSE_UNKNOWN: Final = "x-error-response-unknown"
ERROR_RESPONSE_UNMARSHAL: Final = "x-error-response-unmarshal"
ERROR_ROUTING: Final = "x-error-routing"
ERROR_RPM: Final = "x-error-rpm-exceeded"
ERROR_TPM: Final = "x-error-tpm-exceeded"
ERROR_USER: Final = "x-error-user"

INTERNAL: Final = (LEASE, MODEL, REWRITE_PATH, TARGET, WENT_THROUGH, SHADOW)
"""What a client may never say; Envoy removes them first of all."""

VALUE_LIMIT_BYTES: Final = 256
"""Longest value that we put into a header: Envoy refuses far longer ones with an empty 403."""
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}


def value(text: str) -> str:
    """``text`` as a header value: percent-encoded outside printable ASCII, cut at 256 bytes at a whole escape."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= VALUE_LIMIT_BYTES and text.isascii() and text.isprintable() and "%" not in text:
        return text
    parts: list[str] = []
    room = VALUE_LIMIT_BYTES
    for byte in raw:
        part = chr(byte) if byte in _PLAIN else f"%{byte:02X}"
        if len(part) > room:
            break
        room -= len(part)
        parts.append(part)
    return "".join(parts)
