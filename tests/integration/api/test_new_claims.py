"""Which new ModelClaims the API server takes: one refused object for each rule of the schema."""

from __future__ import annotations

import pytest
from api_claims import ACCEPTED, spec

from aibrix_operator.api import modelclaim

pytestmark = pytest.mark.integration


def figures(footprint="6Gi", floor="1Gi"):
    return {"perGPU": {"maximumFootprint": footprint, "kvFloor": floor}}


def expression(**requirement):
    return {"podSelector": {"matchExpressions": [{"key": "pool", **requirement}]}}


REFUSED = [
    pytest.param({"replicas": 0}, "spec.replicas", "greater than or equal to 1", id="no replica"),
    pytest.param({"replicas": 2}, "spec.replicas", "less than or equal to 1", id="two replicas"),
    pytest.param({"replicas": "1"}, "spec.replicas", "must be of type integer", id="replicas as text"),
    pytest.param({"engine": "tgi"}, "spec.engine", 'supported values: "vllm", "sglang"', id="unknown engine"),
    pytest.param({"engine": ""}, "spec.engine", 'supported values: "vllm", "sglang"', id="empty engine"),
    pytest.param({"podSelector": None}, "spec.podSelector", "Required value", id="no podSelector"),
    pytest.param({"podSelector": "pool-a"}, "spec.podSelector", "must be of type object", id="podSelector as text"),
    pytest.param({"artifactURL": None}, "spec.artifactURL", "Required value", id="no artifactURL"),
    pytest.param({"artifactURL": ""}, "spec.artifactURL", "at least 1 chars long", id="empty artifactURL"),
    pytest.param(
        {"artifactURL": "h" * (modelclaim.MAX_TEXT + 1)}, "spec.artifactURL", "4096", id="an artifactURL without end"
    ),
    pytest.param({"modelName": "m" * (modelclaim.MAX_TEXT + 1)}, "spec.modelName", "4096", id="a name without end"),
    pytest.param({"modelName": 7}, "spec.modelName", "must be of type string", id="modelName as number"),
    pytest.param({"perGPU": {}}, "spec.perGPU.maximumFootprint", "Required value", id="empty perGPU"),
    pytest.param({"perGPU": {"kvFloor": "1Gi"}}, "spec.perGPU.maximumFootprint", "Required value", id="no footprint"),
    pytest.param({"perGPU": {"maximumFootprint": "6Gi"}}, "spec.perGPU.kvFloor", "Required value", id="no floor"),
    pytest.param(
        figures(footprint="six"), "spec.perGPU.maximumFootprint", "must be a Kubernetes quantity", id="no quantity"
    ),
    pytest.param(figures(floor="1GiB"), "spec.perGPU.kvFloor", "must be a Kubernetes quantity", id="a stray letter"),
    pytest.param(figures(floor=""), "spec.perGPU.kvFloor", "must be a Kubernetes quantity", id="an empty figure"),
    pytest.param(figures(floor=1.5), "spec.perGPU.kvFloor", "must be of type integer,string", id="a bare fraction"),
    pytest.param(figures(floor=True), "spec.perGPU.kvFloor", "must be of type integer,string", id="a truth value"),
    pytest.param({"engineConfig": {"args": {"-n": 1}}}, "spec.engineConfig.args.-n", "type string", id="a number"),
    pytest.param(
        {"engineConfig": {"args": {f"--a{i}": "" for i in range(modelclaim.MAX_ARGS + 1)}}},
        "spec.engineConfig.args",
        "must have at most 256 items",
        id="more arguments than any engine has",
    ),
    pytest.param(
        {"engineConfig": {"args": {"--a": "v" * (modelclaim.MAX_TEXT + 1)}}},
        "spec.engineConfig.args.--a",
        "4096",
        id="an argument without end",
    ),
    pytest.param(
        {"podSelector": {"matchLabels": {"pool": "x" * 64}}},
        "spec.podSelector.matchLabels.pool",
        "63",
        id="a value that no label has",
    ),
    pytest.param(expression(operator="Equals", values=["a"]), "operator", "Unsupported value", id="unknown operator"),
    pytest.param(expression(), "operator", "Required value", id="no operator"),
    pytest.param(expression(operator="In"), "matchExpressions[0]", "need values", id="In without values"),
    pytest.param(expression(operator="In", values=[]), "matchExpressions[0]", "need values", id="In nothing"),
    pytest.param(expression(operator="NotIn"), "matchExpressions[0]", "need values", id="NotIn without values"),
    pytest.param(expression(operator="Exists", values=["a"]), "matchExpressions[0]", "take none", id="Exists with any"),
    pytest.param(
        expression(operator="DoesNotExist", values=["a"]),
        "matchExpressions[0]",
        "take none",
        id="DoesNotExist with any",
    ),
    pytest.param({"podSelector": {"matchExpressions": [{"operator": "Exists"}]}}, "key", "Required value", id="no key"),
]


@pytest.mark.parametrize(("changes", "field", "words"), REFUSED)
async def test_a_claim_that_breaks_one_rule_is_refused_by_field_and_reason(claims, changes, field, words):
    verdict = await claims.verdict_on(spec(**changes))
    assert field in verdict
    assert words in verdict


async def test_a_name_of_64_characters_is_refused_and_one_of_63_is_taken(claims):
    assert "at most 63 characters" in await claims.verdict_on(spec(), "n" * 64)
    assert await claims.verdict_on(spec(), "n" * 63) == ACCEPTED


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="all fields"),
        pytest.param(
            dict.fromkeys(("modelName", "engine", "replicas", "engineConfig", "perGPU")), id="required fields alone"
        ),
        pytest.param({"modelName": ""}, id="an empty modelName counts as none"),
        pytest.param({"engine": "sglang"}, id="the other engine"),
        pytest.param({"podSelector": {}}, id="every Pod"),
        pytest.param({"engineConfig": {}}, id="no arguments"),
        pytest.param({"engineConfig": {"args": {"--enable-prefix-caching": ""}}}, id="a flag without value"),
        pytest.param(figures(6 << 30, 1 << 30), id="whole numbers as quantities"),
        pytest.param(figures(-1, 0), id="figures that the operator refuses"),
        pytest.param(figures("30m", "0"), id="quantities that the operator refuses"),
        pytest.param(figures("1e400", "5.6Gi"), id="quantities of any size"),
        pytest.param(expression(operator="In", values=["a", "b"]), id="In"),
        pytest.param(expression(operator="NotIn", values=["a"]), id="NotIn"),
        pytest.param(expression(operator="Exists"), id="Exists"),
        pytest.param(expression(operator="DoesNotExist", values=[]), id="DoesNotExist"),
    ],
)
async def test_a_claim_that_keeps_the_rules_is_taken(claims, changes):
    assert await claims.verdict_on(spec(**changes)) == ACCEPTED


async def test_what_is_left_out_gets_its_default(claims):
    optional = dict.fromkeys(("modelName", "engine", "replicas", "engineConfig", "perGPU"))
    made = await claims.create(spec(**optional), dry_run=True)
    assert made["spec"] == spec(**optional) | {"engine": "vllm", "replicas": 1}


async def test_a_whole_number_stays_one(claims):
    made = await claims.create(spec(**figures(6 << 30, 1 << 30)), dry_run=True)
    assert made["spec"]["perGPU"] == {"maximumFootprint": 6 << 30, "kvFloor": 1 << 30}
