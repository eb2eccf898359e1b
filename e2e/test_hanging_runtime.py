"""A runtime that does not answer holds up its own Pod and nobody else's claim."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from aibrix_operator.api import names
from e2e.api import eventually
from e2e.pool import Pool, WarmPod, message, phase

NORMAL_S = 10.0
"""A claim is Active after some two seconds; a busy machine gets the rest."""


@contextlib.contextmanager
def frozen(pod: WarmPod) -> Iterator[None]:
    """The sidecar takes connections and answers none: its process is stopped, and goes on after the block."""
    sidecar = pod.sidecar.pid
    os.kill(sidecar, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(sidecar, signal.SIGCONT)


@pytest.fixture(scope="module")
def two_pods(new_pool) -> Pool:
    return new_pool("hanging", replicas=2)


def test_a_runtime_that_hangs_delays_nobody_elses_claim(two_pods: Pool):
    hung, sound = two_pods.pods()
    on_hung, on_sound = _only(two_pods, hung), _only(two_pods, sound)
    with frozen(hung):
        two_pods.apply("for-the-hung", podSelector=on_hung)
        started_s = time.monotonic()
        two_pods.apply("for-the-sound", podSelector=on_sound)
        two_pods.wait_active("for-the-sound")
        assert time.monotonic() - started_s < NORMAL_S
        assert phase(two_pods.claim("for-the-hung")) != "Active"
    two_pods.wait_active("for-the-hung", within_s=75.0)
    two_pods.clean_up()


def test_other_claims_are_told_of_the_hanging_runtime_or_placed_elsewhere(two_pods: Pool):
    hung, sound = two_pods.pods()
    on_hung = _only(two_pods, hung)
    two_pods.apply("before", podSelector=on_hung)  # a runtime that hung is left alone for a while
    two_pods.wait_active("before", within_s=75.0)
    two_pods.clean_up()
    # Only who has read that nothing is left on the card knows that it is too small.
    two_pods.apply("too-large", podSelector=on_hung, perGPU={"maximumFootprint": "30Gi", "kvFloor": "1Gi"})
    two_pods.wait_unplaced("too-large", "TooLargeForAnyCard")
    two_pods.clean_up()
    with frozen(hung):  # from here on it must be asked for "first" before a reading of it is too late
        two_pods.apply("first", podSelector=on_hung)
        two_pods.wait("first", "is recorded there", lambda c: c.get("status", {}).get("instances"))
        started_s = time.monotonic()
        two_pods.apply("anywhere")
        two_pods.apply("second", podSelector=on_hung)

        two_pods.wait_active("anywhere")
        assert time.monotonic() - started_s < NORMAL_S
        assert two_pods.claim("anywhere")["status"]["instances"][0]["pod"] == sound.name
        told = two_pods.wait_unplaced("second", "NoMatchingPods")
        assert re.search(f"{hung.name} .*its runtime (has|did) not answer", message(told, "Scheduled"))
    two_pods.wait_active("first", "second", within_s=75.0)


def _only(pool: Pool, pod: WarmPod) -> dict[str, dict[str, str]]:
    """A selector for one Pod of the pool, which gets a label for it."""
    path = f"/api/v1/namespaces/{pool.namespace}/pods/{pod.name}"
    pool.api.patch(path, {"metadata": {"labels": {"only": pod.name}}})
    eventually("the label is there", lambda: pool.api.get(path)["metadata"]["labels"].get("only"))
    return {"matchLabels": {names.POOL_LABEL: pool.name, "only": pod.name}}
