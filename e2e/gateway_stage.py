"""Three gateways that share a Redis, in a sandbox whose processes the stories kill: each has its own policy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from aibrix_operator.api import names
from aibrix_operator.sandbox import operators, processes, up
from aibrix_operator.sandbox.binaries import API_SERVER, CONTROLLER_MANAGER
from aibrix_operator.sandbox.state import Sandbox
from e2e.api import ApiServer, Refused, eventually
from e2e.gateway import Gateway, gateways_of
from e2e.pool import CLAIMS, GIB, SMALL_CARD, Pool, children_of, kill, make_pool
from tests.redis_server import RedisServer

LOCAL, OPEN, CLOSED = range(3)
"""The gateways, by what limits come to while Redis is away."""
POLICIES = ("local", "open", "closed")
AWAKE = ("awake-a", "awake-b")
"""Models without a limit."""
RATED, CAPPED, AMPLE, SLEEPER = "rated", "capped", "ample", "sleeper"
RPS, INFLIGHT = 20, 4
PROFILES = {
    "default": {"boot_seconds": 0.3, "footprint_bytes": GIB, "asleep_footprint_bytes": GIB // 4,
                "tokens_per_second": 2000.0},
    CAPPED: {"tokens_per_second": 10.0},
}  # fmt: skip
CONFIGS = {
    RATED: {"requestsPerSecond": RPS},
    CAPPED: {"requestsInflight": INFLIGHT},
    AMPLE: {"requestsPerSecond": 100_000, "requestsInflight": 1000},
}
USER, USER_RPM = "sharer", 40

_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "verbs": ["list"]}, {"level": "None"}],
}
_CALLER = re.compile(r"\(gateway ([^)]+)\)")


@dataclass
class Stage:
    """The sandbox, and ways to end what runs in it."""

    sandbox: Sandbox
    api: ApiServer
    redis: RedisServer
    gateways: list[Gateway]
    pool: Pool

    # --- gateways

    def process(self, number: int) -> int:
        """The gateway's process below the supervisor that plays its Deployment."""
        (pid,) = children_of(self.sandbox.table.read()[self.gateways[number].address.name].pid)
        return pid

    def envoy(self, number: int) -> int:
        """The Envoy of the gateway."""
        (pid,) = (pid for pid in children_of(self.process(number)) if b"--disable-hot-restart" in _command(pid))
        return pid

    def wait_ready(self, *numbers: int, within_s: float = 30.0) -> None:
        for number in numbers or range(len(self.gateways)):
            gateway = self.gateways[number]
            eventually(f"{gateway.pod_name} is ready", lambda at=gateway: at.look("/readyz").status == 200, within_s)

    def wait_redis(self, is_up: bool, *numbers: int) -> None:
        """Until the gateways have noticed."""
        for number in numbers or range(len(self.gateways)):
            gateway, policy = self.gateways[number], POLICIES[number]
            eventually(
                f"{gateway.pod_name} {'has' if is_up else 'misses'} Redis",
                lambda at=gateway, by=policy: at.metric("aibrix_gateway_redis_up", policy=by) == is_up,
            )

    # --- the operator

    @contextlib.contextmanager
    def without_operator(self) -> Iterator[None]:
        """Killed, and not started again before the end of the block."""
        supervisor = self.sandbox.table.read()[operators.OPERATOR].pid
        os.kill(supervisor, signal.SIGSTOP)
        try:
            for pid in children_of(supervisor):
                kill(pid)
            yield
        finally:
            os.kill(supervisor, signal.SIGCONT)

    # --- Redis

    @contextlib.contextmanager
    def without_redis(self) -> Iterator[None]:
        """Killed; started again, empty, at the end of the block."""
        self.redis.stop()
        self.wait_redis(False)
        try:
            yield
        finally:
            self.redis.start()

    @contextlib.contextmanager
    def with_hung_redis(self) -> Iterator[None]:
        """It keeps its connections, and answers nothing before the end of the block."""
        self.redis.hang()
        try:
            self.wait_redis(False)
            yield
        finally:
            self.redis.go_on()

    # --- the API server

    @contextlib.contextmanager
    def without_api_server(self) -> Iterator[None]:
        """Killed; started again, with an audit log, at the end of the block.

        The controller manager ends with it, as its own Lease makes it in a cluster: one that lives on counts the outage
        as silence of the nodes, and calls their Pods not ready when the API server is back.
        """
        manager, server = self._killed(CONTROLLER_MANAGER), self._killed(API_SERVER)
        self.api.close()
        try:
            yield
        finally:
            policy = self.sandbox.directory / "audit-policy.json"
            policy.write_text(json.dumps(_AUDIT))
            self.audit_log.unlink(missing_ok=True)
            kept = [word for word in server if not word.startswith("--audit-")]
            audit = (f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}")
            self._start(API_SERVER, [*kept, *audit])
            eventually("the API server serves claims", self._serves_claims, 60.0)
            self._start(CONTROLLER_MANAGER, manager)

    def _killed(self, name: str) -> list[str]:
        """The command line that it had."""
        process = self.sandbox.table.read()[name]
        command = [word.decode() for word in _command(process.pid)]
        kill(process.pid)
        processes.wait_gone(process, time.monotonic() + 10.0)
        processes.reap(process.pid)
        return command

    def _start(self, name: str, command: Sequence[str]) -> None:
        log = self.sandbox.logs / f"{name}.log"
        self.sandbox.table.add(name, processes.start(command, log=log, dies_with_parent=False))

    def _serves_claims(self) -> bool:
        try:
            return bool(self.api.get(f"{CLAIMS.format(self.pool.namespace)}?limit=1"))
        except Refused:  # it does not know the kind yet
            return False

    @property
    def audit_log(self) -> Path:
        return self.sandbox.logs / "audit.log"

    def lists(self) -> dict[tuple[str, str], list[float]]:
        """(gateway, kind) → when the API server answered a list of it, since it was started last; Unix seconds.

        Pages of one list are one.
        """
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for line in self.audit_log.read_text().splitlines():
            entry: dict[str, Any] = json.loads(line)
            caller = _CALLER.search(entry.get("userAgent", ""))
            if caller is None or "continue=" in entry["requestURI"] or entry["responseStatus"]["code"] != 200:
                continue
            ended_s = datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
            found[caller[1], entry["objectRef"]["resource"]].append(ended_s)
        return dict(found)

    def configure(self, claim: str, profile: dict[str, Any]) -> None:
        """The claim's default profile."""
        config = json.dumps({"profiles": {"default": profile}})
        path = f"{CLAIMS.format(self.pool.namespace)}/{claim}"
        self.api.patch(path, {"metadata": {"annotations": {names.CONFIG_ANNOTATION: config}}})


@contextlib.contextmanager
def stage(scratch: Path) -> Iterator[Stage]:
    """All of it, with its models awake."""
    profiles = scratch / "profiles.json"
    profiles.write_text(json.dumps(PROFILES))
    redis = RedisServer(scratch / "redis")
    redis.start()
    name = f"e2e-gateways-{os.getpid()}"
    os.environ["AIBRIX_SIM_PROFILES"], before = str(profiles), os.environ.get("AIBRIX_SIM_PROFILES")
    try:
        options = up.Options(
            cards=(SMALL_CARD,),
            gateways=len(POLICIES),
            gateway_options=[("--redis-url", redis.url, "--redis-away", policy) for policy in POLICIES],
            with_pool=False,
        )
        sandbox = up.up(name, options, report=print)
    finally:
        if before is None:
            del os.environ["AIBRIX_SIM_PROFILES"]
        else:
            os.environ["AIBRIX_SIM_PROFILES"] = before
    api = ApiServer(sandbox.kubeconfig)
    try:
        made = Stage(sandbox, api, redis, gateways_of(sandbox), make_pool(sandbox, api, "shared", namespace="shared"))
        _furnish(made)
        yield made
    finally:
        api.close()
        up.down(name)
        redis.stop()


def _furnish(stage: Stage) -> None:
    stage.pool.wait_ready(1)
    stage.pool.set_policy(sleepAfterSeconds=3600)
    models = (*AWAKE, *CONFIGS, SLEEPER)
    for model in models:
        stage.pool.apply(model, footprint="1536Mi", floor="512Mi")
    for model, profile in CONFIGS.items():
        stage.configure(model, profile)
    stage.pool.wait_active(*models, within_s=60.0)
    for gateway in stage.gateways:
        eventually(
            f"{gateway.pod_name} knows all",
            lambda at=gateway: all(at.models().get(m, {}).get("status") == "active" for m in models),
        )


def _command(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
