"""Claims out of YAML: every mistake is told with file, document and field, and all of them at once."""

import json

import pytest
import yaml
from explain_builders import GIB, manifest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.explain.declared import Source, UnusableFiles, read_claims


def read(*documents):
    return read_claims([Source("claims.yaml", yaml.safe_dump_all(documents, sort_keys=False))])


def problems(text):
    with pytest.raises(UnusableFiles) as caught:
        read_claims([Source("claims.yaml", text)])
    return list(caught.value.problems)


def problems_of(*documents):
    return problems(yaml.safe_dump_all(documents, sort_keys=False))


def without(body, *path):
    *parents, last = path
    holder = body
    for key in parents:
        holder = holder[key]
    del holder[last]
    return body


def test_documents_are_claims_in_their_order_the_first_the_oldest():
    found = read(manifest("b"), manifest("a"))
    assert [c.name for c in found.claims] == ["b", "a"]
    assert sorted(found.claims, key=lambda c: c.age_key) == list(found.claims)
    assert found.claims[0].seat.footprint_bytes == 30 * GIB
    assert len({c.uid for c in found.claims}) == 2


def test_lists_empty_documents_and_other_kinds():
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pool"}}
    claims = {"apiVersion": "v1", "kind": "List", "items": [manifest("a"), deployment]}
    found = read(None, claims, {"kind": "ModelClaimList", "apiVersion": "x", "items": [manifest("b")]}, None)
    assert ([c.name for c in found.claims], found.skipped) == (["a", "b"], 1)


def test_json_is_yaml():
    assert read_claims([Source("a.json", json.dumps(manifest("a")))]).claims[0].name == "a"


def test_what_kubectl_get_prints_can_be_planned():
    body = manifest("a", namespace="team")
    body["metadata"] |= {"uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    body["status"] = {"phase": "Active", "instances": [{"pod": "warm-0", "phase": "Active"}]}
    [claim] = read(body).claims
    assert claim.status.instances == ()


AT = "claims.yaml: document 1 (ModelClaim a): "


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(manifest("a", floor="0"), "spec.perGPU.kvFloor is 0, which is not positive", id="zero"),
        pytest.param(
            manifest("a", footprint="30m"),
            "spec.perGPU.maximumFootprint is 30m, which is not a whole number of bytes",
            id="a slip of the unit",
        ),
        pytest.param(
            manifest("a", floor="lots"),
            "spec.perGPU.kvFloor is lots, which is not a quantity: it must be a decimal number followed by a suffix",
            id="no quantity",
        ),
        pytest.param(
            manifest("a", floor=1.5), "spec.perGPU.kvFloor: should be a quantity such as 30Gi", id="a fraction"
        ),
        pytest.param(without(manifest("a"), "spec", "perGPU"), "spec.perGPU is missing", id="no perGPU"),
        pytest.param(
            without(manifest("a"), "spec", "perGPU", "kvFloor"), "spec.perGPU.kvFloor: is missing", id="no floor"
        ),
        pytest.param(without(manifest("a"), "spec", "podSelector"), "spec.podSelector: is missing", id="no selector"),
        pytest.param(manifest("a", pergpu={}), "spec.pergpu: there is no such field", id="a slip of the field's name"),
        pytest.param(
            manifest("a", engine="tgi"), "spec.engine: Input should be 'vllm' or 'sglang'", id="unknown engine"
        ),
        pytest.param(
            manifest("a", replicas="1"), "spec.replicas: Input should be a valid integer", id="text for a number"
        ),
        pytest.param(
            manifest("a", engineConfig={"args": {"--max-model-len": 8192}}),
            "spec.engineConfig.args.--max-model-len: Input should be a valid string",
            id="a number for text",
        ),
        pytest.param(
            manifest("a", engineConfig={"args": {"--tensor-parallel-size": "two"}}),
            "spec.engineConfig.args: --tensor-parallel-size must be a positive integer, and is 'two'",
            id="arguments that cannot work",
        ),
        pytest.param(
            manifest("a", podSelector={"matchExpressions": [{"key": "k", "operator": "In"}]}),
            "spec.podSelector.matchExpressions.0: In and NotIn need values, Exists and DoesNotExist take none",
            id="In without values",
        ),
        pytest.param(
            {**manifest("a"), "apiVersion": "model.aibrix.ai/v1"},
            "apiVersion is 'model.aibrix.ai/v1', and not 'model.aibrix.ai/v1alpha1'",
            id="another version",
        ),
        pytest.param({**manifest("a"), "spec": None}, "spec: Input should be an object", id="no spec"),
    ],
)
def test_a_mistake_is_told_with_its_place(body, told):
    assert problems_of(body) == [AT + told]


def test_all_mistakes_of_all_documents_are_told_at_once():
    told = problems_of(manifest("a", floor="0"), manifest("b", engine="tgi", replicas=2), manifest("c" * 64))
    assert [text.partition(":")[2][:40] for text in told] == [
        " document 1 (ModelClaim a): spec.perGPU.",
        " document 2 (ModelClaim b): spec.engine:",
        " document 2 (ModelClaim b): spec.replica",
        " document 3 (ModelClaim cccccccccccccccc",
    ]
    assert "at most 63 characters" in told[-1]


@pytest.mark.parametrize("name", ["Upper", "-a", "a-", "a_b", "a..b", ""])
def test_names_that_kubernetes_refuses(name):
    [told] = problems_of(manifest(name))
    assert "metadata.name" in told


def test_an_item_of_a_list_is_told_with_its_place():
    bad = {"kind": "List", "apiVersion": "v1", "items": [manifest("a"), manifest("b", floor="0")]}
    [told] = problems_of(bad)
    assert told.startswith("claims.yaml: document 1, item 2 (ModelClaim b): spec.perGPU.kvFloor")


def test_what_is_no_yaml_is_told_with_its_line():
    assert problems("kind: ModelClaim\n---\na: [1\nb: 2\n")[-1].startswith("claims.yaml: document 2: line 4")


@pytest.mark.parametrize("text", ["just text", "- 1\n- 2", "metadata: {}"])
def test_what_is_no_object_is_told(text):
    assert problems(text) == ["claims.yaml: document 1: this is no Kubernetes object: kind is missing"]


def test_a_file_without_claims_is_told():
    assert problems("") == ["claims.yaml: there is no ModelClaim in it"]


def test_claims_that_do_not_go_together():
    assert problems_of(manifest("a"), manifest("a")) == ["ModelClaim a is declared twice"]
    told = problems_of(manifest("a", namespace="x"), manifest("b"))
    assert told == ["the claims are of 2 namespaces (default, x), which share no Pod: plan each"]


def claims_or_problems(text):
    """(names of claims, what is wrong): one of the two is empty."""
    try:
        found = read_claims([Source("claims.yaml", text)])
    except UnusableFiles as error:
        return [], list(error.problems)
    return [c.name for c in found.claims], []


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    claims, told = claims_or_problems(text)
    assert bool(claims) != bool(told)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.sampled_from(["spec", "metadata", "podSelector", "perGPU", "engineConfig", "modelName", "kvFloor", "status"]),
    json_values,
)
def test_any_value_at_any_place_is_read_or_refused(place, value):
    body = manifest("a", engineConfig={"args": {}}, modelName="m")
    holder = body if place in body or place == "status" else body["spec"]
    (holder["perGPU"] if place == "kvFloor" else holder)[place] = value
    claims, told = claims_or_problems(yaml.safe_dump(body))
    assert claims == ([] if told else ["a"])
    assert all(problem.startswith("claims.yaml: document 1") for problem in told)
