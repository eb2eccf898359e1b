"""What each call sends, and which typed error each refusal becomes."""

from __future__ import annotations

import pathlib

import pytest
from cluster_fake_api_server import Answer, FakeApiServer, status, write_kubeconfig

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import LEASES, MODEL_CLAIMS, PODS, Resource

SECRETS = Resource("", "v1", "secrets")
FINALIZER = "model.aibrix.ai/modelclaim-finalizer"


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "subresource", "expected"),
    [
        pytest.param(PODS, None, None, None, "/api/v1/pods", id="core group, all namespaces"),
        pytest.param(PODS, "ns", "p", None, "/api/v1/namespaces/ns/pods/p", id="core group, one object"),
        pytest.param(
            MODEL_CLAIMS,
            "ns",
            "c",
            "status",
            "/apis/model.aibrix.ai/v1alpha1/namespaces/ns/modelclaims/c/status",
            id="own group, status",
        ),
        pytest.param(
            LEASES, "ns", "a/../b", None, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a%2F..%2Fb", id="quoted"
        ),
    ],
)
def test_paths_are_the_api_servers(resource, namespace, name, subresource, expected):
    assert resource.path(namespace, name, subresource) == expected


async def test_status_is_merged_when_the_object_has_not_changed(api: FakeApiServer, cluster: Cluster):
    claim = api.put("a", spec={"x": 1}, status={"phase": "Pending", "candidates": 2})
    answer = await cluster.patch_status(
        MODEL_CLAIMS, "default", "a", {"phase": "Active"}, claim["metadata"]["resourceVersion"]
    )
    assert answer == api.objects[("default", "a")]
    assert answer["status"] == {"phase": "Active", "candidates": 2}


async def test_status_patch_over_a_changed_object_is_a_conflict_that_names_it(api: FakeApiServer, cluster: Cluster):
    claim = api.put("a")
    api.put("a", spec={"changed": True})
    with pytest.raises(errors.Conflict, match="PATCH modelclaims/status default/a: HTTP 409: the object has been"):
        await cluster.patch_status(MODEL_CLAIMS, "default", "a", {"phase": "x"}, claim["metadata"]["resourceVersion"])
    assert "status" not in api.objects[("default", "a")]


async def test_finalizer_is_added_beside_others_and_removed_alone(api: FakeApiServer, cluster: Cluster):
    claim = api.put("a", metadata={"finalizers": ["foreign/one"]})
    claim = await cluster.add_finalizer(MODEL_CLAIMS, claim, FINALIZER)
    assert claim["metadata"]["finalizers"] == ["foreign/one", FINALIZER]
    claim = await cluster.remove_finalizer(MODEL_CLAIMS, claim, FINALIZER)
    assert claim["metadata"]["finalizers"] == ["foreign/one"]


async def test_finalizers_that_changed_since_the_read_are_a_conflict(api: FakeApiServer, cluster: Cluster):
    claim = api.put("a")
    api.put("a", metadata={"finalizers": ["foreign/one"]})
    with pytest.raises(errors.Conflict):
        await cluster.add_finalizer(MODEL_CLAIMS, claim, FINALIZER)
    assert api.objects[("default", "a")]["metadata"]["finalizers"] == ["foreign/one"]


async def test_last_finalizer_off_a_deleted_object_ends_it(api: FakeApiServer, cluster: Cluster):
    claim = await cluster.add_finalizer(MODEL_CLAIMS, api.put("a"), FINALIZER)
    await cluster.delete(MODEL_CLAIMS, "default", "a", uid=claim["metadata"]["uid"])
    await cluster.remove_finalizer(MODEL_CLAIMS, await cluster.get(MODEL_CLAIMS, "default", "a"), FINALIZER)
    with pytest.raises(errors.NotFound):
        await cluster.get(MODEL_CLAIMS, "default", "a")


async def test_annotations_are_set_and_deleted_without_a_version(api: FakeApiServer, cluster: Cluster):
    api.put("a", metadata={"annotations": {"wake": "now", "other": "stays"}})
    await cluster.patch_annotations(MODEL_CLAIMS, "default", "a", {"wake": None, "never-seen": None, "route": "{}"})
    assert api.objects[("default", "a")]["metadata"]["annotations"] == {"other": "stays", "route": "{}"}
    assert api.bodies == [{"metadata": {"annotations": {"wake": None, "never-seen": None, "route": "{}"}}}]


async def test_annotations_meant_for_an_earlier_object_of_that_name_are_a_conflict(
    api: FakeApiServer, cluster: Cluster
):
    api.put("a")
    with pytest.raises(errors.Conflict):
        await cluster.patch_annotations(MODEL_CLAIMS, "default", "a", {"route": "{}"}, uid="the-one-before")


async def test_deletion_meant_for_an_earlier_object_of_that_name_is_a_conflict(api: FakeApiServer, cluster: Cluster):
    api.put("a")
    with pytest.raises(errors.Conflict):
        await cluster.delete(MODEL_CLAIMS, "default", "a", uid="the-one-before")


async def test_creating_what_exists_is_told_apart_from_a_conflict(api: FakeApiServer, cluster: Cluster):
    api.put("a")
    with pytest.raises(errors.AlreadyExists):
        await cluster.create(MODEL_CLAIMS, "default", {"metadata": {"name": "a"}})


async def test_long_list_comes_in_pages_and_is_whole(api: FakeApiServer, cluster: Cluster):
    for number in range(7):
        api.put(f"claim-{number}")
    sizes = [len(page.items) async for page in cluster.pages(MODEL_CLAIMS, "default", limit=3)]
    items, version = await cluster.list_all(MODEL_CLAIMS)
    assert sizes == [3, 3, 1]
    assert [item["metadata"]["name"] for item in items] == [f"claim-{number}" for number in range(7)]
    assert version == str(api.version)


@pytest.mark.parametrize(
    ("answer", "expected", "temporary"),
    [
        pytest.param(status(400, "BadRequest"), errors.Invalid, False, id="400"),
        pytest.param(status(403, "Forbidden"), errors.Denied, True, id="403"),
        pytest.param(status(404, "NotFound"), errors.NotFound, False, id="404"),
        pytest.param(status(409, "Conflict"), errors.Conflict, True, id="409"),
        pytest.param(status(410, "Expired"), errors.Expired, True, id="410"),
        pytest.param(status(413, "RequestEntityTooLarge"), errors.Invalid, False, id="413"),
        pytest.param(status(422, "Invalid"), errors.Invalid, False, id="422"),
        pytest.param(status(429, "TooManyRequests"), errors.Unavailable, True, id="429 without a time"),
        pytest.param(status(500, "InternalError"), errors.Unavailable, True, id="500"),
        pytest.param(status(503, "ServiceUnavailable"), errors.Unavailable, True, id="503"),
        pytest.param(Answer(502, b"<html>bad gateway</html>"), errors.Unavailable, True, id="a proxy's page"),
        pytest.param(Answer(200, b"[1, 2"), errors.Unavailable, True, id="no JSON"),
        pytest.param(Answer(200, b"[1, 2]"), errors.Unavailable, True, id="no object"),
        pytest.param(Answer(200, hang_up=True), errors.Unavailable, True, id="connection cut"),
    ],
)
async def test_refusal_becomes_its_typed_error(api: FakeApiServer, cluster: Cluster, answer, expected, temporary):
    api.put("a")
    api.next_answer("PATCH", answer)
    with pytest.raises(errors.ClusterError, match="PATCH modelclaims default/a") as caught:
        await cluster.patch(MODEL_CLAIMS, "default", "a", {})
    assert type(caught.value) is expected
    assert caught.value.temporary is temporary


async def test_refused_content_carries_the_servers_message_bounded(api: FakeApiServer, cluster: Cluster):
    api.put("a")
    api.next_answer("PATCH", status(422, "Invalid", "spec.engine: Unsupported value " + "x" * 5000))
    with pytest.raises(errors.Invalid, match=r"spec\.engine: Unsupported value x+$") as caught:
        await cluster.patch(MODEL_CLAIMS, "default", "a", {})
    assert len(str(caught.value)) < errors.SERVER_MESSAGE_MAX_CHARS + 100


def test_refusal_about_a_secret_never_quotes_the_server():
    body = b'{"kind":"Status","reason":"Invalid","message":"Invalid value: hunter2"}'
    error = errors.from_answer("PUT secrets ns/s", 422, body, None, is_confidential=SECRETS.is_confidential)
    assert str(error) == "PUT secrets ns/s: HTTP 422: Invalid"


async def test_call_that_was_put_off_is_sent_again_after_the_servers_wait(api: FakeApiServer, cluster: Cluster):
    api.put("a")
    put_off = Answer(429, {"kind": "Status", "reason": "TooManyRequests"}, {"Retry-After": "0"})
    api.next_answer("PATCH", put_off, put_off)
    await cluster.patch(MODEL_CLAIMS, "default", "a", {"spec": {"x": 1}})
    assert api.count("PATCH") == 3
    assert api.objects[("default", "a")]["spec"] == {"x": 1}


async def test_call_that_is_put_off_again_and_again_goes_back_to_the_caller(api: FakeApiServer, cluster: Cluster):
    api.put("a")
    put_off = Answer(429, None, {"Retry-After": "0"})
    api.next_answer("PATCH", *[put_off] * 5)
    with pytest.raises(errors.Unavailable):
        await cluster.patch(MODEL_CLAIMS, "default", "a", {})
    assert api.count("PATCH") == 3


async def test_long_wait_is_the_callers_to_spend(api: FakeApiServer, cluster: Cluster):
    api.put("a")
    api.next_answer("PATCH", Answer(429, None, {"Retry-After": "30"}))
    with pytest.raises(errors.Unavailable) as caught:
        await cluster.patch(MODEL_CLAIMS, "default", "a", {})
    assert caught.value.retry_after_s == 30
    assert api.count("PATCH") == 1


async def test_refused_token_is_read_again_once(api: FakeApiServer, cluster: Cluster, kubeconfig: pathlib.Path):
    api.put("a")
    api.tokens = {"the-next-token"}
    write_kubeconfig(kubeconfig, api.url, "the-next-token")
    assert (await cluster.get(MODEL_CLAIMS, "default", "a"))["metadata"]["name"] == "a"
    assert api.count("GET") == 2


async def test_token_that_stays_refused_is_denied_and_not_quoted(api: FakeApiServer, cluster: Cluster):
    api.tokens = set()
    with pytest.raises(errors.Denied) as caught:
        await cluster.get(MODEL_CLAIMS, "default", "a")
    assert "the-token" not in str(caught.value)
    assert api.count("GET") == 2


async def test_nobody_listening_is_unavailable(tmp_path: pathlib.Path, unused_tcp_port: int):
    kubeconfig = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{unused_tcp_port}", "the-token")
    async with await Cluster.connect(kubeconfig) as cluster:
        with pytest.raises(errors.Unavailable, match="GET modelclaims default/a: Cannot connect"):
            await cluster.get(MODEL_CLAIMS, "default", "a")


async def test_the_api_server_is_told_who_calls(api: FakeApiServer, kubeconfig: pathlib.Path):
    api.put("a")
    for caller in ("", "gateway g1"):
        async with await Cluster.connect(kubeconfig, caller=caller) as cluster:
            await cluster.get(MODEL_CLAIMS, "default", "a")
    plain, named = api.callers
    assert plain.startswith("aibrix-operator/")
    assert named == f"{plain} (gateway g1)"


async def test_proxy_of_the_environment_is_used_unless_the_server_is_excepted(
    api: FakeApiServer, kubeconfig: pathlib.Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
):
    api.put("a")
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_tcp_port}")
    async with await Cluster.connect(kubeconfig) as cluster:
        with pytest.raises(errors.Unavailable, match=str(unused_tcp_port)):
            await cluster.get(MODEL_CLAIMS, "default", "a")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with await Cluster.connect(kubeconfig) as cluster:
        assert (await cluster.get(MODEL_CLAIMS, "default", "a"))["metadata"]["name"] == "a"
