"""Wait until a sandbox's operator, gateways and warm pool are ready, or say why they are not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import aiohttp

from aibrix_operator.api import names
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import PODS
from aibrix_operator.sandbox import pod_folder, pod_status, pool
from aibrix_operator.sandbox.state import Sandbox, SandboxError

WITHIN_S = 90.0
_POLL_S = 0.1
_ANSWER_TIMEOUT = aiohttp.ClientTimeout(total=2)
_LOG_LINES = 12


class Wait(NamedTuple):
    """Something that has to get ready."""

    problem: Callable[[], Awaitable[str]]
    """What is missing; empty when it is ready."""
    log: Callable[[], Path]
    """The file whose end says why it does not get ready."""


async def wait_ready(waits: Sequence[Wait]) -> None:
    """Return when all are ready; SandboxError, with what is missing and what its log says, when that takes too long."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        missing = {wait: problem for wait in waits if (problem := await wait.problem())}
        if not missing:
            return
        if time.monotonic() > deadline:
            told = [f"{problem}. {_last_words(wait.log())}" for wait, problem in missing.items()]
            raise SandboxError(f"not ready after {WITHIN_S:.0f} s: " + "\n".join(told))
        await asyncio.sleep(_POLL_S)


def operator(sandbox: Sandbox, name: str, url: str) -> Wait:
    """Ready when the operator's readiness probe says so; ``name`` is that of its log."""
    return Wait(partial(_probe_problem, "operator", url), lambda: sandbox.logs / f"{name}.log")


def gateway(sandbox: Sandbox, name: str, url: str) -> Wait:
    """The same of a gateway."""
    return Wait(partial(_probe_problem, "gateway", url), lambda: sandbox.logs / f"{name}.log")


def warm_pool(sandbox: Sandbox, cluster: Cluster, replicas: int, agent: str) -> Wait:
    """Ready when ``replicas`` Pods are; ``agent`` is the name of the agent's log."""
    return Wait(partial(_pool_problem, cluster, replicas), partial(_pod_log, sandbox, agent))


async def _probe_problem(what: str, url: str) -> str:
    try:
        async with aiohttp.ClientSession(timeout=_ANSWER_TIMEOUT) as session, session.get(url) as answer:
            return "" if answer.status == 200 else f"the {what} says HTTP {answer.status}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"the {what} does not answer ({error or 'timeout'})"


async def _pool_problem(cluster: Cluster, replicas: int) -> str:
    pods, _ = await cluster.list_all(PODS, pool.NAMESPACE, label_selector=f"{names.POOL_LABEL}={pool.POOL}")
    ready = sum(1 for pod in pods if pod_status.is_ready(pod))
    return "" if ready == replicas else f"{ready} of {replicas} warm Pods are ready"


def _pod_log(sandbox: Sandbox, agent: str) -> Path:
    """A sidecar's, if there is one, else the agent's."""
    logs = [folder.log for folder in pod_folder.list_folders(sandbox.pods)]
    return next((log for log in logs if log.is_file()), sandbox.logs / f"{agent}.log")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return f"{log.name} ends:\n" + "\n".join(lines[-_LOG_LINES:]) if lines else f"{log.name} is empty."
