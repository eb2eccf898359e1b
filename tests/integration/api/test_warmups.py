"""Which ModelWarmups the API server takes: one refused object for each rule of the schema."""

from __future__ import annotations

import pytest
from api_warmups import IMAGE, container, warmup

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import MODEL_WARMUPS
from aibrix_operator.sandbox import crds

pytestmark = pytest.mark.integration


@pytest.fixture
async def cluster(api_server):
    async with await Cluster.connect(api_server.kubeconfig) as connected:
        await crds.apply_crds(connected)
        yield connected


def images(*more, **fields):
    return {"imagePreload": {"images": [IMAGE | fields, *more]}}


def targets(*entries):
    return {"targets": list(entries)}


def custom(**fields):
    return {"custom": {"containers": [container()], **fields}}


def weights(**fields):
    artifact = {"url": "hf://org/name", "path": "org/name"}
    return {"weights": {"image": "aibrix-operator", "artifacts": [artifact]} | fields}


BY_NAME = {"nodes": {"names": ["n1"]}}
BY_LABEL = {"nodeSelector": {"matchLabels": {"pool": "h200"}}}
MOUNT = [{"name": "cache", "mountPath": "/cache"}]
CACHE = {"name": "cache", "hostPath": {"path": "/var/lib/models"}}


def named(test_id, number, spec, told):
    return pytest.param(spec, told, id=test_id, marks=pytest.mark.acceptance(number))


REFUSED = [
    named("no targets", "MW-01", targets(), "spec.targets"),
    named("both kinds of target", "MW-02", targets(BY_NAME | BY_LABEL), "exactly one of nodes and nodeSelector"),
    named("neither kind of target", "MW-02", targets({}), "exactly one of nodes and nodeSelector"),
    named("no names", "MW-02", targets({"nodes": {"names": []}}), "spec.targets[0].nodes.names"),
    named("an empty selector", "MW-02", targets({"nodeSelector": {}}), "an empty selector would take every node"),
    named(
        "an unknown operator",
        "MW-02",
        targets({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Foo"}]}}),
        'Unsupported value: "Foo"',
    ),
    named(
        "init containers alone",
        "MW-03",
        {"imagePreload": None, "custom": {"initContainers": [container()]}},
        "at least one image, artifact or custom container",
    ),
    named("nothing at all", "MW-03", {"imagePreload": None}, "at least one image, artifact or custom container"),
    named("an image without command", "MW-04", images(command=[]), "spec.imagePreload.images[0].command"),
    named("an image twice", "MW-04", images(IMAGE), "Duplicate value"),
    named("an unknown pull policy", "MW-04", images(imagePullPolicy="Sometimes"), 'Unsupported value: "Sometimes"'),
    named("a blank image", "MW-04", images(image=" "), "spec.imagePreload.images[0].image"),
    named("33 images", "MW-04", images(*(IMAGE | {"image": f"b{i}"} for i in range(32))), "at most 32 items"),
    named("a generated name", "MW-05", custom(containers=[container("image-0")]), "as a generated one, image-0"),
    named(
        "a generated name of weights",
        "MW-05",
        custom(initContainers=[container("weights-0")]) | weights(),
        "as a generated one, weights-0",
    ),
    named("one name twice", "MW-05", custom(containers=[container(), container()]), "Duplicate value"),
    named("one name of both kinds", "MW-05", custom(initContainers=[container()]), "must differ"),
    named("a name with an underscore", "MW-05", custom(containers=[container("Bad_Name")]), "containers[0].name"),
    named(
        "a restart policy",
        "MW-05",
        custom(containers=[container(restartPolicy="Always")]),
        "restartPolicy is not allowed",
    ),
    named("a volume without source", "MW-06", custom(volumes=[{"name": "cache"}]), "at least 2 properties"),
    named("a volume with two sources", "MW-06", custom(volumes=[CACHE | {"emptyDir": {}}]), "Too many"),
    named(
        "an undeclared mount", "MW-06", custom(containers=[container(volumeMounts=MOUNT)]), "must name declared volumes"
    ),
    named("continuous mode", "MW-07", {"mode": "Continuous"}, 'Unsupported value: "Continuous"'),
    named("no parallelism", "MW-07", {"policies": {"parallelism": 0}}, "spec.policies.parallelism"),
    named("no time", "MW-07", {"policies": {"jobTimeoutSeconds": 0}}, "spec.policies.jobTimeoutSeconds"),
    named("no time to live", "MW-07", {"policies": {"ttlSecondsAfterFinished": 0}}, "ttlSecondsAfterFinished"),
    named("1,001 names", "MW-08", targets({"nodes": {"names": [f"n{i}" for i in range(1001)]}}), "at most 1000"),
    named("1,001 times a name", "MW-08", targets(*[{"nodes": {"names": ["n1"] * 501}}] * 2), "more than 1000 nodes"),
    named("a path out of the cache", "MW-06", weights(artifacts=[{"url": "hf://o/n", "path": "../x"}]), "].path"),
    named("an unknown scheme", "MW-06", weights(artifacts=[{"url": "ftp://o/n", "path": "x"}]), "].url"),
]


@pytest.mark.parametrize(("spec", "told"), REFUSED)
async def test_an_object_that_breaks_a_rule_is_refused_with_its_reason(cluster, namespace, spec, told):
    with pytest.raises(errors.Invalid) as refused:
        await cluster.create(MODEL_WARMUPS, namespace, warmup(**spec))
    assert told in str(refused.value)


ACCEPTED = [
    named("mode Once", "MW-07", {"mode": "Once"}, ""),
    named("no retries", "MW-07", {"policies": {"retryLimit": 0}}, ""),
    named("32 images", "MW-04", images(*(IMAGE | {"image": f"b{i}"} for i in range(31))), ""),
    named("1,000 names", "MW-08", targets(*[{"nodes": {"names": ["n1"] * 500}}] * 2), ""),
    named(
        "host path, privileges and a GPU",
        "MW-06",
        custom(
            containers=[
                container(
                    volumeMounts=MOUNT,
                    securityContext={"privileged": True},
                    resources={"limits": {"nvidia.com/gpu": 1}},
                )
            ],
            volumes=[CACHE],
        ),
        "",
    ),
    named("a name past the generated ones", "MW-05", custom(containers=[container("image-1")]), ""),
    named("weights alone", "MW-03", weights() | {"imagePreload": None}, ""),
]


@pytest.mark.parametrize(("spec", "told"), ACCEPTED)
async def test_what_breaks_no_rule_is_taken_and_kept_whole(cluster, namespace, spec, told):
    made = await cluster.create(MODEL_WARMUPS, namespace, warmup(**spec))
    for field in ("custom", "imagePreload"):
        assert made["spec"].get(field) == warmup(**spec)["spec"].get(field)


@pytest.mark.acceptance("MW-09")
async def test_no_field_of_the_spec_changes_after_creation(cluster, namespace):
    spec = custom(containers=[container(resources={"limits": {"memory": "1Gi"}})])
    await cluster.create(MODEL_WARMUPS, namespace, warmup(**spec))
    changes = [
        {"policies": {"parallelism": 3}},
        {"targets": [BY_LABEL]},
        {"custom": {"containers": [container(resources={"limits": {"memory": "2Gi"}})]}},
        {"custom": None},
    ]
    for change in changes:
        with pytest.raises(errors.Invalid, match="spec is immutable"):
            await cluster.patch(MODEL_WARMUPS, namespace, "warm", {"spec": change})
    labels = {"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/kept"]}}
    assert (await cluster.patch(MODEL_WARMUPS, namespace, "warm", labels))["metadata"]["labels"] == {"team": "a"}
