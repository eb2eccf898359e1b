"""A model that runs on two GPUs goes to a Pod that has two."""

from __future__ import annotations

import pytest

from e2e.pool import AWAKE, CARD, record


@pytest.mark.acceptance("51")
def test_mc51_tp2_a_model_on_two_gpus_is_served_by_the_pod_that_has_them(new_pool):
    """Both GPUs are alike here; which of two unlike ones sizes the account is the ledger's unit tests' to say."""
    pool = new_pool("tp2", gpus=2)

    pool.apply("two-gpus", engineConfig={"args": {"--tensor-parallel-size": "2", "--max-model-len": "2048"}})

    pool.wait_active("two-gpus")
    assert pool.claim("two-gpus")["status"]["instances"][0]["pod"] == pool.pod.name
    cards = pool.pod.snapshot()["accelerators"]
    assert [c["hbm_total_bytes"] - c["hbm_free_bytes"] for c in cards] == [AWAKE, AWAKE]
    assert record(pool.claim("two-gpus")) == CARD - AWAKE
    assert pool.pod.chat(pool.route("two-gpus")["port"], "two-gpus").status == 200


@pytest.mark.acceptance("51")
def test_mc51_tp2_a_model_on_one_gpu_finds_no_place_there(new_pool):
    pool = new_pool("tp2-only", gpus=2)
    pool.apply("one-gpu")
    refused = pool.wait_unplaced("one-gpu", "NoMatchingPods")
    assert refused["status"]["candidates"] == 0
