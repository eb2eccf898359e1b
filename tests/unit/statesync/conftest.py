"""Every test that needs a Redis runs against a fake and a real one."""

from __future__ import annotations

import pytest
from sync_replicas import Backend


@pytest.fixture(scope="session", params=["fakeredis", "redis-server"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return Backend(request.getfixturevalue("redis_server").url if request.param == "redis-server" else None)
