"""A Pod whose runtime cannot be understood, or cannot be reached, is left alone, and claims say why."""

from __future__ import annotations

import pytest

from aibrix_operator.api import names
from e2e.pool import Pool, message, phase, reason

SILENT = "its runtime did not answer"
FAULTS = {
    "not-json": SILENT,
    "cut": SILENT,
    "server-error": SILENT,
    "too-long": SILENT,
    "absurd-figure": SILENT,
    "no-cards": "its cards could not be measured",
    "unmeasured-card": "its cards could not be measured",
    "old-sidecar": "its runtime does not report what its cards can hold, as one older than the controller does not",
}
"""How the sidecar answers (see ``bad_runtime``) → what the claim's condition says after "could not be judged"."""


@pytest.fixture(scope="module")
def bad_pools(new_pool) -> dict[str, Pool]:
    """One Pod a fault, each with a claim that may go nowhere else."""
    pools = {
        fault: new_pool(f"bad-{fault}", wait=False, environment={"E2E_SIDECAR": "bad", "E2E_FAULT": fault})
        for fault in FAULTS
    }
    for fault, pool in pools.items():
        pool.wait_ready(1)
        pool.apply(fault)
    return pools


@pytest.mark.parametrize("fault", FAULTS)
def test_a_card_behind_a_sidecar_that_answers_nonsense_is_left_alone(bad_pools: dict[str, Pool], fault):
    pool = bad_pools[fault]
    why = f"{pool.pod.name} could not be judged: {FAULTS[fault]}"
    # A first look, before the sidecar listens, finds nobody; the next try is after ten seconds.
    refused = pool.wait(fault, f"says {why}", lambda claim: message(claim, "Scheduled").endswith(why))
    assert reason(refused, "Scheduled") == "NoMatchingPods"
    assert phase(refused) == "Pending"
    assert refused["status"]["candidates"] == 1
    assert "instances" not in refused["status"]
    assert pool.annotations() == {}
    assert pool.pod.get("/calls").body == 0


def test_a_pod_without_an_address_is_no_candidate_until_it_has_one(new_pool):
    """Running without an IP, as a Pod is for a moment on a node whose network is slow."""
    pool = new_pool("no-address")
    path = "/api/v1/namespaces/no-address/pods"
    labels = {names.POOL_LABEL: "elsewhere", names.ENABLED_LABEL: "true"}
    spec = {"schedulerName": "nobody", "containers": [{"name": "runtime", "image": "any"}]}
    pool.api.create(path, {"metadata": {"name": "bare", "labels": labels}, "spec": spec})
    pool.api.patch(f"{path}/bare/status", {"status": {"phase": "Running"}})

    pool.apply("no-pod", podSelector={"matchLabels": {names.POOL_LABEL: "elsewhere"}})
    pool.apply("beside-it")

    refused = pool.wait_unplaced("no-pod", "NoMatchingPods")
    assert refused["status"]["candidates"] == 0
    pool.wait_active("beside-it")
    # It gets the address of a runtime that answers, and the claim is judged by what that one says.
    pool.api.patch(f"{path}/bare/status", {"status": {"podIP": pool.pod.address, "podIPs": [{"ip": pool.pod.address}]}})
    pool.wait("no-pod", "has a candidate", lambda c: c["status"]["candidates"] == 1)
    pool.api.delete(f"{path}/bare?gracePeriodSeconds=0")
