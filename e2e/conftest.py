"""One sandbox for all stories; each story has a warm pool in a namespace of its own."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aibrix_operator.operator.grants import GRANTS
from aibrix_operator.sandbox import operators, processes, rights_audit, state, up
from aibrix_operator.sandbox.rights_audit import Used
from aibrix_operator.sandbox.state import Sandbox, SandboxError
from e2e.api import ApiServer, eventually
from e2e.gateway import Gateway, gateways_of
from e2e.gateway_stage import Stage
from e2e.gateway_stage import stage as opened_stage
from e2e.pool import ASLEEP, AWAKE, LARGE_CARD, SAMPLES, SMALL_CARD, EndlessAnswer, Pool, make_pool
from tests import failed_once
from tests.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[1]
UPSTREAM_PYTHON = Path(os.environ.get("AIBRIX_UPSTREAM_PYTHON") or ROOT / ".cache/upstream/bin/python")
SMALL_CARDS = 24
GATEWAYS = 3
GATEWAY_GRACE_S = 20
"""One that is asked to end is looked at while a stream of some seconds still runs through it."""
STORY_WITHIN_S = 300

PROFILES = {
    "default": {"boot_seconds": 0.3, "footprint_bytes": AWAKE, "asleep_footprint_bytes": ASLEEP},
    "slow-boot": {"boot_seconds": 4.0},
    "endless": {"tokens_per_second": 10.0},
    "streams": {"tokens_per_second": 10.0},
}
"""Of the stand-in engines. The KV pool is the default, the whole card: an engine is not held to anything by itself."""

_operator_log = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(failed_once, "failed-once")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stories wait for real processes; each wait has a deadline of its own, below this one."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(STORY_WITHIN_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show what the operator said last beside a story that failed."""
    report = yield
    log = item.session.stash.get(_operator_log, None)
    if report.failed and log is not None and log.exists():
        lines = log.read_text(errors="replace").splitlines()
        report.sections.append(("end of the operator's log", "\n".join(lines[-30:])))
    return report


def _rights() -> dict[str, Used]:
    """What the sandboxes of this run and of those before it asked of their API servers; empty when none was logged."""
    folder = rights_audit.folder()
    logs = sorted(folder.glob("*.log")) if folder is not None and folder.is_dir() else []
    return rights_audit.read_logs(logs, {}) if logs else {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A request that was denied fails the run, whichever story it belongs to."""
    if rights_audit.is_denied(_rights()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Granted, used and denied, of all that ran with AIBRIX_AUDIT_DIR."""
    if found := _rights():
        terminalreporter.section("rights")
        terminalreporter.write_line(rights_audit.report(found, GRANTS))


@pytest.fixture(scope="session", autouse=True)
def nothing_left_of_killed_sessions() -> None:
    """Sandboxes outlive the process that starts them, so a test session that was killed could not end its own."""
    for left in state.list_sandboxes():
        owner = re.fullmatch(r"e2e-(?:[a-z]+-)?(\d+)", left.name)
        if owner and processes.identify(int(owner[1])) is None:
            with contextlib.suppress(SandboxError):  # another worker of this session is at it already
                up.down(left.name)


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """What the gateways share their counts in."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sandbox(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis: RedisServer
) -> Iterator[Sandbox]:
    profiles = tmp_path_factory.mktemp("profiles") / "profiles.json"
    profiles.write_text(json.dumps(PROFILES))
    with pytest.MonkeyPatch.context() as patch:
        # The agent hands its environment on to the sidecars, and they to their engines.
        patch.setenv("AIBRIX_SIM_PROFILES", str(profiles))
        patch.setenv("AIBRIX_UPSTREAM_PYTHON", str(UPSTREAM_PYTHON))
        patch.setenv("AIBRIX_REDIS_URL", redis.url)
        options = up.Options(
            cards=(SMALL_CARD,) * SMALL_CARDS + (LARGE_CARD,),
            gateways=GATEWAYS,
            gateway_options=[("--grace", str(GATEWAY_GRACE_S))] * GATEWAYS,
            with_pool=False,
            runtime_command=(sys.executable, str(Path(__file__).with_name("warm_pod.py")), "{address}"),
        )
        made = up.up(f"e2e-{os.getpid()}", options, report=print)
    request.session.stash[_operator_log] = made.logs / f"{operators.OPERATOR}.log"
    yield made
    if state.load(made.name) is not None:
        up.down(made.name)


@pytest.fixture(scope="session")
def sandbox_api(sandbox: Sandbox) -> Iterator[ApiServer]:
    server = ApiServer(sandbox.kubeconfig)
    yield server
    server.close()


@pytest.fixture(scope="session")
def api(sandbox_api: ApiServer) -> ApiServer:
    """What a story asks; stories on real nodes have another in its place."""
    return sandbox_api


@pytest.fixture(scope="session")
def gateways(sandbox: Sandbox) -> list[Gateway]:
    """All replicas."""
    return gateways_of(sandbox)


@pytest.fixture(scope="session")
def gateway(gateways: list[Gateway]) -> Gateway:
    """One of them. It serves every namespace, so that a story's models have names of their own."""
    return gateways[0]


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Gateways that share a Redis, in a sandbox of their own: stories kill what the other sandbox's stories need."""
    with opened_stage(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


MakePool = Callable[..., Pool]


@pytest.fixture(scope="module")
def new_pool(sandbox: Sandbox, api: ApiServer) -> Iterator[MakePool]:
    """Makes pools that live as long as the tests of one file: ``new_pool(name, replicas=1, gpus=1, …)``."""
    made: list[Pool] = []

    def make(name: str, *, replicas: int = 1, wait: bool = True, **shape: Any) -> Pool:
        pool = make_pool(sandbox, api, name, namespace=name, replicas=replicas, **shape)
        made.append(pool)
        if wait:
            pool.wait_ready(replicas)
        return pool

    yield make
    for pool in made:
        pool.remove()


@pytest.fixture(scope="session")
def pool_a(sandbox: Sandbox, api: ApiServer) -> Pool:
    """The common setup of the acceptance list: one Pod with one card of 24 GiB, on our sidecar."""
    pool = make_pool(sandbox, api, "b300-pool-a", namespace="pool-a")
    pool.wait_ready(1)
    return pool


@pytest.fixture(scope="session")
def upstream_pool(sandbox: Sandbox, api: ApiServer) -> Iterator[Pool]:
    """The same on AIBrix 0.8.0's own sidecar, which nothing of ours was changed for."""
    if not UPSTREAM_PYTHON.exists():
        pytest.skip(f"upstream's sidecar is not installed at {UPSTREAM_PYTHON}: run `make upstream`")
    with contextlib.ExitStack() as stack:
        # Its segments and the loopback ports of its engines are the machine's, so one such sidecar runs at a time.
        lock = stack.enter_context((Path(tempfile.gettempdir()) / "aibrix-contract-upstream.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        pool = make_pool(sandbox, api, "upstream", namespace="upstream", environment={"E2E_SIDECAR": "upstream"})
        pool.wait_ready(1)
        yield pool
        pool.clean_up()
        for claim in SAMPLES:
            Path(f"/dev/shm/kvc_{claim}").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def endless_answer(sandbox: Sandbox, sandbox_api: ApiServer) -> EndlessAnswer:
    """Given: a claim that was deleted while a request runs that does not end."""
    # Not ``api``: whatever story comes first has this made, and that may be one on real nodes.
    pool = make_pool(sandbox, sandbox_api, "endless", namespace="endless")
    pool.wait_ready(1)
    return EndlessAnswer.start(pool, "endless", tokens=2000)


@pytest.fixture(scope="session", autouse=True)
def _early(request: pytest.FixtureRequest) -> None:
    """Start what takes a minute and a half before everything else, so that the other stories are told meanwhile."""
    if any("endless_answer" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("endless_answer")


@pytest.fixture
def pool(pool_a: Pool) -> Iterator[Pool]:
    """``pool_a``, cleaned of all that a story applies to it; the samples stay for the next story."""
    before = {*pool_a.applied, *SAMPLES}
    yield pool_a
    if new := pool_a.applied - before:
        pool_a.clean_up(*new)


@pytest.fixture(scope="session")
def empty_pools(sandbox: Sandbox, api: ApiServer) -> Iterator[Pool]:
    """Two pools of one Pod each, in turn for ever."""
    pools = [make_pool(sandbox, api, name, namespace=name) for name in ("empty-one", "empty-two")]
    for pool in pools:
        pool.wait_ready(1)
    return itertools.cycle(pools)


@pytest.fixture
def empty_pool(empty_pools: Iterator[Pool]) -> Iterator[Pool]:
    """Given: a Pod with nothing on its card. What a story leaves there goes while the next one has the other pool."""
    pool = next(empty_pools)
    pool.clean_up()
    eventually("no engine is left", lambda: not pool.pod.engines(), 60.0)
    yield pool
    pool.delete(*pool.applied)


@pytest.fixture
def samples(pool: Pool) -> Pool:
    """Given: the pool with both samples Active."""
    return with_samples(pool)


@pytest.fixture(params=["ours", "upstream"])
def either_samples(request: pytest.FixtureRequest) -> Pool:
    """Given: a pool with both samples Active, of our sidecar and of upstream's in turn."""
    found: Pool = request.getfixturevalue({"ours": "pool_a", "upstream": "upstream_pool"}[request.param])
    return with_samples(found)


def with_samples(pool: Pool) -> Pool:
    pool.apply_samples()
    pool.wait_active(*SAMPLES)
    return pool
