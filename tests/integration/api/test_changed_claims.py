"""What of a ModelClaim may change after its creation: the figures of ``perGPU``, and nothing else."""

from __future__ import annotations

import itertools

import pytest
from api_claims import ACCEPTED, spec

from aibrix_operator.api.modelclaim import IMMUTABLE_FIELDS

pytestmark = pytest.mark.integration

OTHERS = {
    "modelName": "another",
    "podSelector": {"matchLabels": {"claim.model.aibrix.ai/pool": "another"}},
    "artifactURL": "s3://bucket/another",
    "engine": "sglang",
    "engineConfig": {"args": {"--max-model-len": "4096"}},
}
"""Field → another legal value."""
OPTIONAL = ("modelName", "engineConfig")
"""Fields that can be absent, and so be added and removed: ``engine`` is filled in, the others are required."""


def test_every_immutable_field_has_a_row():
    assert set(OTHERS) == set(IMMUTABLE_FIELDS)


@pytest.mark.parametrize("field", OTHERS)
async def test_an_immutable_field_cannot_be_changed(claims, field):
    await claims.create(spec(), "claim")
    assert f"{field} is immutable" in await claims.verdict_on_patch("claim", {field: OTHERS[field]})


@pytest.mark.parametrize("field", OPTIONAL)
async def test_an_immutable_field_cannot_be_added(claims, field):
    await claims.create(spec(**{field: None}), "claim")
    assert f"{field} is immutable" in await claims.verdict_on_patch("claim", {field: OTHERS[field]})


@pytest.mark.parametrize("field", OPTIONAL)
async def test_an_immutable_field_cannot_be_removed(claims, field):
    await claims.create(spec(), "claim")
    assert f"{field} is immutable" in await claims.verdict_on_patch("claim", {field: None})


@pytest.mark.parametrize("field", ["podSelector", "artifactURL"])
async def test_a_required_field_cannot_be_removed(claims, field):
    await claims.create(spec(), "claim")
    assert f"spec.{field}: Required value" in await claims.verdict_on_patch("claim", {field: None})


async def test_a_removed_default_is_filled_in_again(claims):
    await claims.create(spec(), "claim")
    assert (await claims.patch("claim", {"engine": None, "replicas": None}))["spec"] == spec()
    await claims.create(spec(engine="sglang"), "other")
    assert "engine is immutable" in await claims.verdict_on_patch("other", {"engine": None})


@pytest.mark.parametrize(
    ("before", "change"),
    [
        pytest.param({"args": {"--a": "1"}}, {"args": {"--b": "1"}}, id="an argument more"),
        pytest.param({"args": {"--a": "1"}}, {"args": {"--a": None}}, id="an argument fewer"),
        pytest.param({"args": {"--a": "1"}}, {"args": None}, id="no arguments"),
        pytest.param({}, {"args": {}}, id="an empty map"),
    ],
)
async def test_engine_arguments_cannot_change_one_by_one(claims, before, change):
    await claims.create(spec(engineConfig=before), "claim")
    assert "engineConfig is immutable" in await claims.verdict_on_patch("claim", {"engineConfig": change})


@pytest.mark.parametrize("replicas", [0, 2])
async def test_replicas_cannot_move(claims, replicas):
    await claims.create(spec(), "claim")
    assert "spec.replicas" in await claims.verdict_on_patch("claim", {"replicas": replicas})


ABSENT, SMALL, LARGE = None, {"maximumFootprint": "6Gi", "kvFloor": "1Gi"}, {"maximumFootprint": "7Gi", "kvFloor": 1}


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.permutations([ABSENT, SMALL, LARGE], 2)), ids=lambda figures: str(figures)
)
async def test_figures_may_be_added_changed_and_removed(claims, before, after):
    await claims.create(spec(perGPU=before), "claim")
    assert await claims.verdict_on_patch("claim", {"perGPU": after}) == ACCEPTED


async def test_a_changed_figure_is_checked_like_a_new_one(claims):
    await claims.create(spec(), "claim")
    verdict = await claims.verdict_on_patch("claim", {"perGPU": {"kvFloor": "1GB"}})
    assert "kvFloor must be a Kubernetes quantity" in verdict


async def test_two_fields_that_change_at_once_are_both_named(claims):
    await claims.create(spec(), "claim")
    verdict = await claims.verdict_on_patch("claim", {"modelName": "b", "artifactURL": "hf://b"})
    assert "modelName is immutable" in verdict
    assert "artifactURL is immutable" in verdict
