"""The chart refuses values that it does not know, before anything reaches a cluster."""

import json

import pytest
import yaml
from chart_helm import CHART, HelmError, helm, render_text
from chart_variants import VARIANTS

SCHEMA = json.loads((CHART / "values.schema.json").read_text())

WRONG = {
    "a misspelled name": ({"gateway": {"replica": 3}}, "'replica' not allowed"),
    "a misspelled top-level name": ({"gatewy": {}}, "'gatewy' not allowed"),
    "text for a number": ({"operator": {"replicas": "two"}}, "/operator/replicas"),
    "no replicas": ({"operator": {"replicas": 0}}, "/operator/replicas"),
    "an unknown level": ({"operator": {"logLevel": "LOUD"}}, "/operator/logLevel"),
    "an unknown policy": ({"gateway": {"redisAway": "maybe"}}, "/gateway/redisAway"),
    "an unknown users' mode": ({"gateway": {"users": {"mode": "never"}}}, "/gateway/users/mode"),
    "the moving tag": ({"image": {"tag": "latest"}}, "/image/tag"),
    "a digest that is none": ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
    "a name that is none": ({"runtimeToken": {"existingSecret": "Not A Name"}}, "/runtimeToken/existingSecret"),
    "a namespace that is none": ({"warmPools": {"namespaces": ["A"]}}, "/warmPools/namespaces/0"),
    "a namespace twice": ({"warmPools": {"namespaces": ["a", "a"]}}, "/warmPools/namespaces"),
    "all Secrets of a namespace": ({"artifactSecrets": [{"namespace": "a", "names": []}]}, "/artifactSecrets/0/names"),
    "an unknown gang scheduler": ({"orchestration": {"podGroups": ["kueue"]}}, "/orchestration/podGroups/0"),
    "a port that is none": ({"gateway": {"service": {"port": 70000}}}, "/gateway/service/port"),
    "resources without limits": ({"operator": {"resources": {"limits": None}}}, "/operator/resources"),
    "a quantity that is none": ({"redis": {"resources": {"limits": {"cpu": "lots"}}}}, "/redis/resources/limits/cpu"),
    "a route to no Gateway": ({"gateway": {"httpRoute": {"enabled": True}}}, "/gateway/httpRoute/parentRefs"),
    "a further option that is none": ({"gateway": {"extraArgs": ["keys"]}}, "/gateway/extraArgs/0"),
    "no API server": ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
}


@pytest.mark.parametrize(("values", "told"), WRONG.values(), ids=WRONG)
def test_values_that_cannot_be_meant_are_refused(values, told):
    with pytest.raises(HelmError, match="don't meet the specifications") as refused:
        render_text(values)
    assert told in str(refused.value)


def undescribed(values, schema, where=""):
    """Paths of ``values`` that ``schema`` does not name; maps that users fill are described as a whole."""
    schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "properties" not in schema:
        return [] if "type" in schema or "anyOf" in schema else [where]
    found = [where] if schema.get("additionalProperties") is not False else []
    for name, value in values.items():
        inner = schema["properties"].get(name)
        found += [f"{where}/{name}"] if inner is None else undescribed(value, inner, f"{where}/{name}")
    return found


def test_every_value_is_described_and_every_map_of_ours_is_closed():
    assert undescribed(yaml.safe_load((CHART / "values.yaml").read_text()), SCHEMA) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_helm_lints_each_variant(name):
    told = helm("lint", "--strict", str(CHART), "--values", "-", stdin=json.dumps(VARIANTS[name]))
    assert "0 chart(s) failed" in told
    assert "WARNING" not in told
