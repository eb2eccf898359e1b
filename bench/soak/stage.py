"""What a run plays on: a sandbox with three gateways over one Redis, and the claims that clients ask."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import redis

from aibrix_operator.api import names
from aibrix_operator.cluster.resource import MODEL_CLAIMS, Object
from aibrix_operator.gateway.limits import keys
from aibrix_operator.sandbox import gateways, pool, up
from aibrix_operator.sandbox.gateways import GatewayAddress
from aibrix_operator.sandbox.state import Sandbox
from bench.gateway.redis_server import redis_server

GATEWAYS = 3
CARD, CARDS = "24Gi", 3
LASTING = "lasting"
"""Answers one stream as long as the run; its Pod stays."""
FREE, LIMITED = ("free-0", "free-1", "free-2"), ("limited-0", "limited-1", "limited-2")
"""Without limits, and with some that are hardly ever reached: each request of these goes through Redis."""
ASKED = FREE + LIMITED
TOKENS_PER_S = 2.0
"""Of the lasting stream: an engine's longest answer is then half an hour."""
USER = "soak"
_GIB = 1 << 30
_PROFILES = {
    "default": {
        "boot_seconds": 0.5,
        "footprint_bytes": 2 * _GIB,
        "asleep_footprint_bytes": _GIB // 4,
        "tokens_per_second": 2000.0,
    },
    LASTING: {"tokens_per_second": TOKENS_PER_S},
}
_LIMITS = {LASTING: {"requestsInflight": 1}} | {
    name: {"requestsInflight": 32, "requestsPerSecond": 100_000} for name in LIMITED
}
_RECORD = {"name": USER, "rpm": 100_000_000, "tpm": 100_000_000_000}


@dataclass(frozen=True, slots=True)
class Setting:
    """A sandbox that stands."""

    sandbox: Sandbox
    redis_url: str
    gateways: tuple[GatewayAddress, ...]

    @property
    def urls(self) -> list[str]:
        return [gateway.url for gateway in self.gateways]

    def processes(self) -> Mapping[str, int]:
        """Name → pid, of each gateway's process and of its Envoy."""
        table = self.sandbox.table.read()
        found: dict[str, int] = {}
        for gateway in self.gateways:
            (own,) = _children(table[gateway.name].pid)
            found[gateway.name] = own
            for child in _children(own):
                if b"--disable-hot-restart" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found[f"{gateway.name}'s Envoy"] = child
        return found

    def left_in_redis(self) -> list[str]:
        """Slots and running requests that Redis still counts."""
        with redis.Redis.from_url(self.redis_url, decode_responses=True) as store:
            hashes = [key for key in store.keys("aibrix:rrq:*") if key not in (keys.GATEWAYS, keys.RUNNING)]
            running = [text for text in store.hvals(keys.RUNNING) if text != "{}"]
            return [f"{key}: {store.hgetall(key)}" for key in hashes] + running


@contextlib.contextmanager
def setting(scratch: Path) -> Iterator[Setting]:
    """As long as the block."""
    profiles = scratch / "profiles.json"
    profiles.write_text(json.dumps(_PROFILES))
    os.environ["AIBRIX_SIM_PROFILES"] = str(profiles)
    name = f"soak-{os.getpid()}"
    with redis_server(scratch) as url:
        with redis.Redis.from_url(url) as store:
            store.set(keys.user_record(USER), json.dumps(_RECORD))
        options = up.Options(
            cards=(CARD,) * CARDS, gateways=GATEWAYS, gateway_options=[("--redis-url", url)] * GATEWAYS
        )
        sandbox = up.up(name, options, report=print)
        try:
            yield Setting(sandbox, url, tuple(gateways.list_gateways(sandbox)))
        finally:
            up.down(name)


def claim_body(name: str) -> Object:
    """A claim for the pool, with the profile that its name stands for."""
    config = json.dumps({"profiles": {"default": _LIMITS.get(name, {})}})
    return {
        "apiVersion": MODEL_CLAIMS.api_version,
        "kind": "ModelClaim",
        "metadata": {"name": name, "annotations": {names.CONFIG_ANNOTATION: config}},
        "spec": {
            "podSelector": {"matchLabels": {names.POOL_LABEL: pool.POOL}},
            "artifactURL": f"huggingface://example/{name}",
            "perGPU": {"maximumFootprint": "3Gi", "kvFloor": "1Gi"},
        },
    }


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
