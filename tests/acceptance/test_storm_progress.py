"""The progress deadline: told, never acted on."""

from __future__ import annotations

import pytest
from storm_cluster import STORMSERVICES, played, role, storm


def progressing(cluster):
    found = cluster.condition("Progressing")
    return found and (found["status"], found["reason"])


PROCESSING, EXCEEDED = ("True", "Processing"), ("False", "ProgressDeadlineExceeded")


@pytest.mark.acceptance("PD-01")
@pytest.mark.acceptance("PD-02")
@played()
async def test_a_service_that_makes_no_progress_says_so_and_is_ready_later(cluster):
    is_good = False
    cluster.kubelet.is_good = lambda pod: is_good
    cluster.apply(storm("pd", progressDeadlineSeconds=30))
    await cluster.run(20)
    assert progressing(cluster) == PROCESSING
    before = cluster.uids()
    await cluster.run(16)
    assert progressing(cluster) == EXCEEDED
    assert cluster.condition("Progressing")["message"] == 'StormService "pd" has timed out progressing.'
    assert cluster.uids() == before
    cluster.edit("pd", replicas=2)
    await cluster.run(5)
    assert len(cluster.rolesets()) == 2
    is_good = True
    for pod in cluster.pods():
        cluster.kubelet.set_ready(pod, True)
    await cluster.until(cluster.is_ready)
    assert progressing(cluster) is None
    is_good = False
    cluster.set_image("pd", "worker", "engine:2")
    await cluster.run(20)
    assert progressing(cluster) == PROCESSING
    await cluster.run(25)
    assert progressing(cluster) == EXCEEDED


@pytest.mark.acceptance("PD-03")
@played()
async def test_progress_now_and_then_is_progress_and_passes_are_not(cluster):
    cluster.kubelet.is_good = lambda pod: False
    cluster.apply(storm("pd", replicas=4, progressDeadlineSeconds=30))
    await cluster.run(5)
    for pod in cluster.pods():
        cluster.kubelet.set_ready(pod, True)
        for _ in range(4):
            await cluster.run(5)
            touched = {"metadata": {"annotations": {"touched": str(cluster.store.version)}}}
            cluster.store.change(STORMSERVICES, ("default", "pd"), touched)
            assert progressing(cluster) in (PROCESSING, None)
    await cluster.until(cluster.is_ready)


@pytest.mark.acceptance("PD-03")
@played()
async def test_passes_without_progress_do_not_postpone_the_deadline(cluster):
    cluster.kubelet.is_good = lambda pod: False
    cluster.apply(storm("pd", progressDeadlineSeconds=30))
    for _ in range(12):
        await cluster.run(3)
        touched = {"metadata": {"annotations": {"touched": str(cluster.store.version)}}}
        cluster.store.change(STORMSERVICES, ("default", "pd"), touched)
    assert progressing(cluster) == EXCEEDED


@pytest.mark.acceptance("PD-04")
@played()
async def test_a_pause_stops_the_clock_but_takes_nothing_back(cluster):
    cluster.kubelet.is_good = lambda pod: False
    cluster.apply(storm("pd", progressDeadlineSeconds=30, paused=True))
    await cluster.run(60)
    assert progressing(cluster) == ("Unknown", "DeploymentPaused")
    cluster.edit("pd", paused=False)
    await cluster.run(1)
    assert progressing(cluster) == ("Unknown", "DeploymentResumed")
    await cluster.run(50)
    assert progressing(cluster) == EXCEEDED
    cluster.edit("pd", paused=True)
    await cluster.run(5)
    assert progressing(cluster) == EXCEEDED


@pytest.mark.acceptance("PD-05")
@played()
async def test_other_conditions_survive(cluster):
    cluster.apply(storm("pd", role("a", 1)))
    await cluster.until(cluster.is_ready)
    own = {
        "type": "Mine",
        "status": "True",
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    kept = [*cluster.status()["conditions"], own]
    cluster.store.change(STORMSERVICES, ("default", "pd"), {"status": {"conditions": kept}})
    cluster.set_image("pd", "a", "engine:2")
    await cluster.until(lambda: not cluster.is_ready())
    await cluster.until(cluster.is_ready)
    assert cluster.condition("Mine") == own
