"""What Envoy is told of a request, in the headers of both sides."""

from __future__ import annotations

from typing import assert_never

from aibrix_operator.gateway import headers, refusals
from aibrix_operator.gateway.exchange import Forwarded, Refused
from aibrix_operator.gateway.leases import Lease
from aibrix_operator.gateway.limits.limiter import Denied, Limit, User
from aibrix_operator.gateway.strategies.base import FOR_CLIENT
from aibrix_operator.gateway.verdict import Forward, Refuse

STORE_RETRY_S = 1
"""Retry-After while the shared counts are away."""


def forwarded(lease: Lease) -> Forwarded:
    """It goes to the lease's endpoint."""
    forward, request, endpoint = lease.forward, lease.request, lease.endpoint
    request_id, strategy = headers.value(request.id), headers.value(forward.strategy)
    upstream = [
        (headers.WENT_THROUGH, "true"),
        (headers.STRATEGY, strategy),
        (headers.TARGET, endpoint.address),
        (headers.REQUEST_ID_UPSTREAM, request_id),
        (headers.LEASE, lease.id),
    ]
    if forward.path is not None:
        upstream.append((headers.REWRITE_PATH, forward.path))
    client = [
        (headers.WENT_THROUGH, "true"),
        (headers.REQUEST_ID, request_id),
        (headers.STRATEGY, strategy),
        (headers.TARGET, endpoint.pod),
        (headers.TARGET_ADDRESS, endpoint.address),
    ]
    told = request.memo.pop(FOR_CLIENT, {})
    client += [(name, headers.value(text)) for name, text in told.items() if not name.startswith(":")]
    if forward.profile is not None:
        client.append((headers.CHOSEN_PROFILE, headers.value(forward.profile)))
    granted = lease.granted
    if granted.rpm is not None:
        client.append((headers.UPDATE_RPM, str(granted.rpm)))
    if granted.tpm is not None:
        client.append((headers.UPDATE_TPM, str(granted.tpm)))
    return Forwarded(upstream, client)


def refused(refuse: Refuse, request_id: str) -> Refused:
    """It ends here."""
    told = (headers.REQUEST_ID, headers.value(request_id))
    return Refused(refuse.status, [*refuse.response_headers(), told], refuse.body())


def denied(denial: Denied, verdict: Forward | None, user: User | None) -> Refuse:
    """The error of a limit. ``verdict``: of a request that was not refused anyway."""
    retry_s = denial.retry_after_s
    match denial.limit:
        case Limit.RPM:
            assert user is not None
            return refusals.rpm_exceeded(user.name, user.rpm, retry_s)
        case Limit.TPM:
            assert user is not None
            return refusals.tpm_exceeded(user.name, user.tpm, retry_s)
        case Limit.MODEL_RPS:
            assert verdict is not None
            assert verdict.rps is not None
            return refusals.model_rps_exceeded(verdict.model.name, verdict.rps.shown, retry_s)
        case Limit.INFLIGHT:
            assert verdict is not None
            assert verdict.inflight is not None
            return refusals.inflight_exceeded(verdict.model.name, verdict.inflight, retry_s)
        case Limit.STORE:
            return refusals.counts_away(STORE_RETRY_S if retry_s is None else retry_s)
        case never:
            assert_never(never)
