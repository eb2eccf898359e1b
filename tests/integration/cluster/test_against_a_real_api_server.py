"""What the fake API server of the unit tests claims about the real one, asked from the real one."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from kubernetes.aio.config import incluster_config

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.events import EventRecorder, ObjectReference
from aibrix_operator.cluster.overlay import Overlay
from aibrix_operator.cluster.resource import EVENTS, MODEL_CLAIMS, PODS, Object, Resource, key_of
from aibrix_operator.cluster.watch import Change, Watch

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("claims_known")]

SECRETS = Resource("", "v1", "secrets")
FINALIZER = "model.aibrix.ai/modelclaim-finalizer"


def claim(name: str) -> Object:
    return {
        "apiVersion": MODEL_CLAIMS.api_version,
        "kind": "ModelClaim",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": {"claim.model.aibrix.ai/pool": "p"}},
            "artifactURL": f"huggingface://example/{name}",
        },
    }


def pod(name: str, **metadata: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "runtime", "image": "example.org/runtime"}]},
    }


@contextlib.asynccontextmanager
async def following(watch: Watch) -> AsyncIterator[Watch]:
    task = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(20):
            await watch.synced.wait()
        yield watch
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def seen(condition: asyncio.Condition, is_true) -> None:
    async with asyncio.timeout(20), condition:
        await condition.wait_for(is_true)


async def test_status_over_a_changed_claim_is_a_conflict_and_over_a_fresh_one_is_written(
    cluster: Cluster, namespace: str
):
    made = await cluster.create(MODEL_CLAIMS, namespace, claim("a"))
    changed = await cluster.add_finalizer(MODEL_CLAIMS, made, FINALIZER)
    with pytest.raises(errors.Conflict, match="has been modified"):
        await cluster.patch_status(
            MODEL_CLAIMS, namespace, "a", {"phase": "Active"}, made["metadata"]["resourceVersion"]
        )
    written = await cluster.patch_status(
        MODEL_CLAIMS, namespace, "a", {"phase": "Active"}, changed["metadata"]["resourceVersion"]
    )
    assert written["status"]["phase"] == "Active"
    assert written["metadata"]["generation"] == made["metadata"]["generation"]


async def test_status_that_the_schema_refuses_is_invalid_with_the_servers_words(cluster: Cluster, namespace: str):
    made = await cluster.create(MODEL_CLAIMS, namespace, claim("a"))
    with pytest.raises(errors.Invalid, match="phase") as caught:
        await cluster.patch_status(MODEL_CLAIMS, namespace, "a", {"phase": 7}, made["metadata"]["resourceVersion"])
    assert not caught.value.temporary


async def test_deleted_claim_stays_until_its_finalizer_is_off(cluster: Cluster, namespace: str):
    made = await cluster.create(MODEL_CLAIMS, namespace, claim("a"))
    held = await cluster.add_finalizer(MODEL_CLAIMS, made, FINALIZER)
    await cluster.delete(MODEL_CLAIMS, namespace, "a", uid=made["metadata"]["uid"])
    deleting = await cluster.get(MODEL_CLAIMS, namespace, "a")
    assert "deletionTimestamp" in deleting["metadata"]
    with pytest.raises(errors.Conflict):
        await cluster.remove_finalizer(MODEL_CLAIMS, held, FINALIZER)
    await cluster.remove_finalizer(MODEL_CLAIMS, deleting, FINALIZER)
    with pytest.raises(errors.NotFound):
        await cluster.get(MODEL_CLAIMS, namespace, "a")


async def test_annotations_come_and_go_without_a_version_and_only_on_the_meant_pod(cluster: Cluster, namespace: str):
    made = await cluster.create(PODS, namespace, pod("p"))
    await cluster.patch_annotations(PODS, namespace, "p", {"wake": "now", "route": '{"port":0}'})
    patched = await cluster.patch_annotations(
        PODS, namespace, "p", {"wake": None, "never-seen": None}, uid=made["metadata"]["uid"]
    )
    assert patched["metadata"]["annotations"] == {"route": '{"port":0}'}
    with pytest.raises(errors.Conflict):
        await cluster.patch_annotations(PODS, namespace, "p", {"route": None}, uid="somebody-else")
    with pytest.raises(errors.NotFound):
        await cluster.patch_annotations(PODS, namespace, "gone", {"route": None})


async def test_refused_secret_is_not_quoted(cluster: Cluster, namespace: str):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "not base64: hunter2"}}
    with pytest.raises(errors.Invalid) as caught:
        await cluster.create(SECRETS, namespace, secret)
    assert "hunter2" not in str(caught.value)


async def test_watch_and_overlay_follow_changes_deletions_and_a_lost_connection(cluster: Cluster, namespace: str):
    something = asyncio.Condition()
    changes: list[tuple[Change, str]] = []
    told: set[asyncio.Task[None]] = set()

    def listener(change: Change, old: Object | None, new: Object | None) -> None:
        overlay.observed(change, old, new)
        changes.append((change, key_of(new or old or {})[1]))
        task = asyncio.get_running_loop().create_task(tell())
        told.add(task)
        task.add_done_callback(told.discard)

    async def tell() -> None:
        async with something:
            something.notify_all()

    watch = Watch(cluster, MODEL_CLAIMS, namespace=namespace, on_event=listener, page_objects=2)
    overlay = Overlay(watch.objects)
    for name in ("a", "b", "c"):
        await cluster.create(MODEL_CLAIMS, namespace, claim(name))
    async with following(watch):
        assert changes == [(Change.ADDED, name) for name in ("a", "b", "c")]
        assert "managedFields" not in watch.objects[(namespace, "a")]["metadata"]
        shown = watch.objects[(namespace, "a")]
        written = await cluster.patch_status(
            MODEL_CLAIMS, namespace, "a", {"phase": "Active"}, shown["metadata"]["resourceVersion"]
        )
        overlay.wrote(written)
        current = overlay.get((namespace, "a"))
        assert current is not None
        assert current["status"]["phase"] == "Active"
        await seen(something, lambda: (Change.MODIFIED, "a") in changes)
        assert overlay.pending == 0
        await cluster.delete(MODEL_CLAIMS, namespace, "b")
        await seen(something, lambda: (Change.DELETED, "b") in changes)
        assert sorted(name for _, name in watch.objects) == ["a", "c"]
        assert watch.lists == 1


async def test_version_from_before_the_servers_memory_is_expired(cluster: Cluster, namespace: str):
    async def read() -> list[bytes]:
        async with cluster.watch_lines(
            MODEL_CLAIMS, namespace, label_selector="", resource_version="1", timeout_s=5
        ) as lines:
            return [line async for line in lines]

    # The server says it by an ERROR event or by its status; which one depends on how far back it is.
    try:
        (first, *_) = await read()
    except errors.Expired:
        return
    assert b'"code":410' in first


async def test_events_are_stored_counted_and_found_by_their_object(cluster: Cluster, namespace: str):
    made = await cluster.create(MODEL_CLAIMS, namespace, claim("a"))
    about = ObjectReference(MODEL_CLAIMS.api_version, "ModelClaim", namespace, "a", made["metadata"]["uid"])
    recorder = EventRecorder(cluster, component="aibrix-operator", instance="test")
    recorder.start()
    recorder.emit(about, "Warning", "NoMatchingPods", "no available candidate warm pod for model", "Place")
    await recorder.stop(grace_s=20)
    recorder.start()
    recorder.emit(about, "Warning", "NoMatchingPods", "no available candidate warm pod for model", "Place")
    recorder.emit(about, "Normal", "Activating", "model a engine starting on pod p:0" + "ü" * 600, "Activate")
    await recorder.stop(grace_s=20)
    stored, _ = await cluster.list_all(EVENTS, namespace)
    of_claim = {event["reason"]: event for event in stored if event["involvedObject"]["uid"] == about.uid}
    assert recorder.dropped == 0
    assert of_claim["NoMatchingPods"]["count"] == 2
    assert of_claim["NoMatchingPods"]["type"] == "Warning"
    assert len(of_claim["Activating"]["message"].encode()) <= 1024


async def test_wrong_token_is_denied(api_server, namespace: str):
    text = api_server.kubeconfig.read_text()
    wrong = api_server.kubeconfig.with_name("wrong-token")
    wrong.write_text(text.replace(api_server.token, "not-the-token"))
    async with await Cluster.connect(wrong) as stranger:
        with pytest.raises(errors.Denied) as caught:
            await stranger.list_all(PODS, namespace)
    assert caught.value.status == 401


async def test_process_in_the_cluster_finds_server_authority_and_token(
    api_server, namespace: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "token").write_text(api_server.token)
    (tmp_path / "ca.crt").write_bytes(api_server.plane.authority.certificate)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    server = urlsplit(api_server.url)
    monkeypatch.setenv(incluster_config.SERVICE_HOST_ENV_NAME, server.hostname)
    monkeypatch.setenv(incluster_config.SERVICE_PORT_ENV_NAME, str(server.port))
    async with await Cluster.connect() as inside:
        pods, _ = await inside.list_all(PODS, namespace)
    assert pods == []
