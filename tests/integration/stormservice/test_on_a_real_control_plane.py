"""StormServices on a real API server with its scheduler and garbage collector; only the kubelets are ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl

import aiohttp
import pytest
from storm_cluster import PODS, PODSETS, REVISIONS, ROLESETS, SERVICES, STORMSERVICES, role, storm
from storm_stage import NAMESPACES, Stage, account, gone, registered
from suite_rights import assert_least_rights
from typer.testing import CliRunner

from aibrix_operator import rollouts
from aibrix_operator.api import orchestration
from aibrix_operator.api.gang import POD_GROUPS, Scheduler
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import Object, Resource
from aibrix_operator.sandbox import crds, rights
from aibrix_operator.sandbox.control_plane import ControlPlane
from aibrix_operator.sandbox.crds import CRDS
from aibrix_operator.stormservice.grants import GRANTS
from bench.fleet.fake_nodes import NODES, FakeNodes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TLS_ENDS_S = 0.25
"""As aiohttp's documentation has it: a session that is closed leaves its TLS connections to the loop for a moment."""

EVENTS = Resource("", "v1", "events")
OPTIONS = tuple(Scheduler)
"""Choices in the chart's values that the operator has its rights by."""


@pytest.fixture(scope="module")
def prepared() -> set[str]:
    return set()


@pytest.fixture
async def stage(whole_plane, operator_process, prepared, request):
    """A namespace of the test's own; nodes and the operator are up."""
    async with await Cluster.connect(whole_plane.kubeconfig) as cluster:
        if not prepared:
            await crds.apply_crds(cluster)
            await rights.grant(cluster, OPTIONS)
            rights.write_kubeconfigs(whole_plane)
            operator_process.start()
        if operator_process.process is None:
            operator_process.start()
        nodes = FakeNodes(cluster, 3)
        if prepared:
            nodes._register = registered  # they are there already
        async with nodes.running():
            prepared.add("nodes")
            made = await cluster.create(NAMESPACES, None, {"metadata": {"generateName": "storm-"}})
            name = made["metadata"]["name"]
            await account(cluster, name)
            yield Stage(cluster, name, nodes)
            with contextlib.suppress(errors.NotFound):
                await cluster.delete(NAMESPACES, None, name)  # what is left of it goes while the next test runs
    await asyncio.sleep(TLS_ENDS_S)
    assert operator_process.errors() == []


@pytest.mark.acceptance("SS-01")
@pytest.mark.acceptance("SS-02")
@pytest.mark.acceptance("SS-03")
@pytest.mark.acceptance("SS-07")
async def test_a_service_of_two_roles_is_made_scaled_and_left_alone(stage):
    await stage.apply(storm("pd", role("prefill", 3), role("decode", 2, stateful=True), replicas=2))
    status = (await stage.ready())["status"]
    assert {k: v for k, v in status.items() if k.endswith("eplicas")} == {
        "replicas": 2,
        "readyReplicas": 2,
        "notReadyReplicas": 0,
        "currentReplicas": 2,
        "updatedReplicas": 2,
        "updatedReadyReplicas": 2,
    }
    pods = await stage.list(PODS)
    assert len(pods) == 10
    assert {p["spec"]["subdomain"] for p in pods} == {"pd"}
    service = await stage.get(SERVICES, "pd")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    await stage.rest()
    await stage.cluster.patch(STORMSERVICES, stage.namespace, "pd/scale", {"spec": {"replicas": 1}})
    await stage.until(lambda: _count(stage, 5))
    assert (await stage.ready())["status"]["replicas"] == 1
    tampered = {"spec": {"selector": {"app": "x"}, "publishNotReadyAddresses": False}}
    await stage.cluster.patch(SERVICES, stage.namespace, "pd", tampered)
    await stage.until(lambda: _is_mended(stage))


async def _count(stage: Stage, pods: int) -> bool:
    return len(await stage.list(PODS)) == pods


async def _is_mended(stage: Stage) -> bool:
    spec = (await stage.get(SERVICES, "pd"))["spec"]
    return spec["selector"] == {"storm-service-name": "pd"} and spec["publishNotReadyAddresses"]


@pytest.mark.acceptance("SS-15")
async def test_a_name_that_is_no_dns_label_makes_no_pods_and_says_why(stage):
    await stage.apply(storm("p.d"))
    await stage.until(lambda: _has_failed(stage, "p.d"))
    assert await stage.list(PODS) == []
    found = await stage.get(STORMSERVICES, "p.d")
    [failure] = [c for c in found["status"]["conditions"] if c["type"] == "ReplicaFailure"]
    assert "p.d" in failure["message"]


async def _has_failed(stage: Stage, name: str) -> bool:
    found = await stage.get(STORMSERVICES, name)
    return any(c["type"] == "ReplicaFailure" for c in found.get("status", {}).get("conditions", ()))


@pytest.mark.acceptance("SS-20")
@pytest.mark.acceptance("SS-26")
async def test_a_rolling_update_and_its_rollback(stage):
    await stage.apply(storm("pd", role("a", 2), replicas=2, updateStrategy={"maxSurge": 1, "maxUnavailable": 0}))
    first = (await stage.ready())["status"]["currentRevision"]
    fewest, done = 99, asyncio.Event()

    async def look() -> None:
        nonlocal fewest
        while not done.is_set():
            found = [r for r in await stage.list(ROLESETS) if "deletionTimestamp" not in r["metadata"]]
            ready = sum(
                any(c["type"] == "Ready" and c["status"] == "True" for c in r.get("status", {}).get("conditions", ()))
                for r in found
            )
            fewest = min(fewest, ready)
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    await stage.set_images("pd", "engine:2")
    second = (await stage.ready())["status"]["currentRevision"]
    done.set()
    await looking
    assert fewest == 2
    assert second != first
    await stage.set_images("pd", "engine:1")
    assert (await stage.ready())["status"]["currentRevision"] == first
    numbers = {r["metadata"]["name"]: r["revision"] for r in await stage.list(REVISIONS)}
    assert numbers == {first: 3, second: 2}


@pytest.mark.acceptance("SS-31")
@pytest.mark.acceptance("SS-34")
async def test_an_image_changes_in_pods_that_the_api_server_has_filled_in(stage):
    worker = role("a", 2, updateStrategy={"type": "InPlaceIfPossible"})
    worker["template"]["spec"]["readinessGates"] = [{"conditionType": orchestration.IN_PLACE_GATE}]
    worker["template"]["spec"]["containers"][0] |= {
        "ports": [{"containerPort": 8000}],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "resources": {"limits": {"cpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
    }
    worker["template"]["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    await stage.apply(storm("pd", worker, mode="Pooled"))
    await _keep_reporting(stage, "pd")
    before = {p["metadata"]["uid"] for p in await stage.list(PODS)}
    await stage.set_images("pd", "engine:2")
    await _keep_reporting(stage, "pd")
    pods = await stage.list(PODS)
    assert {p["metadata"]["uid"] for p in pods} == before
    assert {p["spec"]["containers"][0]["image"] for p in pods} == {"engine:2"}
    assert {p["metadata"]["labels"][orchestration.ROLE_REVISION] for p in pods} == {"2"}
    told = {e["reason"] for e in (await stage.list(EVENTS))}
    assert "InPlaceFallback" not in told


async def _keep_reporting(stage: Stage, name: str) -> None:
    """A kubelet looks at gates all the time; ours when it is told to."""
    async with asyncio.timeout(60):
        while not await stage.is_ready(name):
            for pod in await stage.list(PODS):
                if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") == "Running":
                    await stage.nodes.report(pod, True)
            await asyncio.sleep(0.3)


@pytest.mark.acceptance("PS-01")
@pytest.mark.acceptance("PS-02")
async def test_groups_of_pods(stage):
    await stage.apply(storm("pd", role("decode", 2, podGroupSize=3), mode="Pooled"))
    await stage.ready()
    sets = await stage.list(PODSETS)
    assert [(s["status"]["phase"], s["status"]["readyPods"]) for s in sets] == [("Ready", 3)] * 2
    pods = await stage.list(PODS)
    assert [p["metadata"]["name"] for p in pods] == [f"{s['metadata']['name']}-{i}" for s in sets for i in range(3)]
    lost = pods[1]["metadata"]
    await stage.cluster.delete(PODS, stage.namespace, lost["name"], uid=lost["uid"])
    await stage.until(lambda: _is_replaced(stage, lost))
    assert {p["metadata"]["uid"] for p in await stage.list(PODS)} >= {
        p["metadata"]["uid"] for p in pods if p is not pods[1]
    }


async def _is_replaced(stage: Stage, lost: Object) -> bool:
    pods = await stage.list(PODS)
    return len(pods) == 6 and lost["uid"] not in {p["metadata"]["uid"] for p in pods} and await stage.is_ready("pd")


@pytest.mark.acceptance("DR-01")
async def test_a_pod_drains_before_it_goes(stage):
    await stage.apply(storm("pd", role("a", 2, drain={"timeoutSeconds": 4}), mode="Pooled"))
    template = (await stage.ready())["spec"]["template"]
    template["spec"]["roles"][0]["replicas"] = 1
    began_s = asyncio.get_running_loop().time()
    await stage.edit("pd", template=template)
    await stage.until(lambda: _drains(stage, 1))
    await stage.until(lambda: _count(stage, 1))
    assert asyncio.get_running_loop().time() - began_s > 3.0  # times are written in whole seconds
    await stage.ready()


async def _drains(stage: Stage, count: int) -> bool:
    pods = await stage.list(PODS)
    return sum(p["metadata"].get("annotations", {}).get(orchestration.DRAINING) == "true" for p in pods) == count


@pytest.mark.acceptance("HN-01")
async def test_a_replaced_pod_goes_back_to_its_node_unless_that_is_closed(stage):
    history = {"replacementScheduling": {"historicalNode": {"mode": "Preferred"}}}
    await stage.apply(storm("pd", role("a", 3, stateful=True, updateStrategy=history), mode="Pooled"))
    await stage.ready()
    before = [p["spec"]["nodeName"] for p in await stage.list(PODS)]
    await stage.set_images("pd", "engine:2")
    await stage.ready()
    assert [p["spec"]["nodeName"] for p in await stage.list(PODS)] == before
    closed = before[0]
    await stage.cluster.patch(NODES, None, closed, {"spec": {"unschedulable": True}})
    try:
        await stage.set_images("pd", "engine:3")
        await stage.ready()
        assert closed not in [p["spec"]["nodeName"] for p in await stage.list(PODS)]
    finally:
        await stage.cluster.patch(NODES, None, closed, {"spec": {"unschedulable": None}})


@pytest.mark.acceptance("GG-01")
@pytest.mark.acceptance("GG-06")
@pytest.mark.parametrize("scheduler", Scheduler)
async def test_podgroups_are_made_once_their_definition_is_installed(stage, scheduler):
    kind = POD_GROUPS[scheduler]
    groups = Resource(kind.group, kind.version, "podgroups")
    strategy = {"schedulingStrategy": {f"{scheduler}SchedulingStrategy": {"minMember": 2}}}
    await stage.apply(storm("before", role("a", 2), roleset=strategy))
    await stage.ready("before")
    await stage.cluster.create(CRDS, None, _definition(groups))
    await stage.until(lambda: _serves(stage, groups))
    await stage.apply(storm("after", role("a", 2), roleset=strategy))
    await stage.until(lambda: _has_groups(stage, groups))
    names = {g["metadata"]["name"] for g in await stage.list(groups)}
    pods = await stage.list(PODS, **{"storm-service-name": "after"})
    if scheduler is Scheduler.VOLCANO:
        assert {p["spec"]["schedulerName"] for p in pods} == {"volcano"}
    else:
        assert {p["metadata"]["labels"][kind.labels[0]] for p in pods} <= names
    tampered, taken = await stage.list(groups)
    assert tampered["spec"] == {"minMember": 2}
    await _patch(stage, groups, tampered, {"spec": {"minMember": 7}})
    await _patch(stage, groups, taken, {"metadata": {"labels": None, "ownerReferences": None}})
    await stage.until(lambda: _is_told(stage, taken))  # PodGroups are looked at every 15 s
    await stage.until(lambda: _has_min_member(stage, groups, tampered))
    await stage.edit("after", replicas=0)
    await stage.until(lambda: _is_left(stage, groups, taken))


async def _is_left(stage: Stage, groups: Resource, group: Object) -> bool:
    return [g["metadata"]["name"] for g in await stage.list(groups)] == [group["metadata"]["name"]]


async def _has_min_member(stage: Stage, groups: Resource, group: Object) -> bool:
    found = await stage.get(groups, group["metadata"]["name"])
    return bool(found["spec"] == group["spec"])


async def _patch(stage: Stage, resource: Resource, obj: Object, change: Object) -> None:
    await stage.cluster.patch(resource, stage.namespace, obj["metadata"]["name"], change)


async def _is_told(stage: Stage, taken: Object) -> bool:
    """A RoleSet says that this name is in use."""
    conditions = [c for r in await stage.list(ROLESETS) for c in r.get("status", {}).get("conditions", ())]
    return any(f'"{taken["metadata"]["name"]}" already exists' in c.get("message", "") for c in conditions)


async def test_names_that_others_have_are_told_and_used_again_once_they_are_free(stage):
    await stage.apply(storm("pd", role("a", 1, stateful=True), role("b", 1, podGroupSize=2), mode="Pooled"))
    await stage.ready()
    [pod] = await stage.list(PODS, **{"role-name": "a"})
    [podset] = await stage.list(PODSETS)
    for resource, taken in ((PODS, pod), (PODSETS, podset)):
        await _patch(stage, resource, taken, {"metadata": {"ownerReferences": None}})
        await stage.until(lambda taken=taken: _is_told(stage, taken))
        await stage.cluster.delete(resource, stage.namespace, taken["metadata"]["name"])
        await stage.until(lambda resource=resource, taken=taken: _is_another(stage, resource, taken), 60)
    await stage.ready()
    [revision] = await stage.list(REVISIONS)
    revision["metadata"].pop("ownerReferences")
    # Whole, and as our client writes it: a patch would change the bytes of its data, which are immutable.
    whole = {**revision, "apiVersion": "apps/v1", "kind": "ControllerRevision"}
    await stage.cluster.replace(REVISIONS, stage.namespace, revision["metadata"]["name"], whole)
    await stage.until(lambda: _has_collided(stage))
    assert (await stage.ready())["status"]["currentRevision"] != revision["metadata"]["name"]


async def _is_another(stage: Stage, resource: Resource, former: Object) -> bool:
    try:
        found = await stage.get(resource, former["metadata"]["name"])
    except errors.NotFound:
        return False
    return bool(found["metadata"]["uid"] != former["metadata"]["uid"])


async def _has_collided(stage: Stage) -> bool:
    return bool((await stage.get(STORMSERVICES, "pd"))["status"].get("collisionCount") == 1)


async def test_a_revision_of_another_client_gets_a_new_number_and_old_ones_go(stage, whole_plane):
    await stage.apply(storm("pd", role("a", 1), mode="Pooled"))
    first = (await stage.ready())["status"]["currentRevision"]
    await stage.set_images("pd", "engine:2")
    second = (await stage.ready())["status"]["currentRevision"]
    body = await stage.get(REVISIONS, first)
    await stage.cluster.delete(REVISIONS, stage.namespace, first)
    await _create_as_go_does(whole_plane, stage.namespace, body)
    await stage.set_images("pd", "engine:1")
    await stage.ready()
    numbers = {r["metadata"]["name"]: r["revision"] for r in await stage.list(REVISIONS)}
    assert numbers == {first: 3, second: 2}
    await stage.edit("pd", revisionHistoryLimit=0)
    await stage.until(lambda: _has_one_revision(stage, first))


async def _create_as_go_does(plane: ControlPlane, namespace: str, body: Object) -> None:
    """Without blanks between tokens: the data of a revision are immutable byte by byte."""
    kept = {key: body["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    whole = {**body, "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": kept}
    trust = ssl.create_default_context(cadata=plane.authority.certificate.decode())
    headers = {"Authorization": f"Bearer {plane.token}", "Content-Type": "application/json"}
    url = f"{plane.url}/apis/apps/v1/namespaces/{namespace}/controllerrevisions"
    text = json.dumps(whole, separators=(",", ":"))
    async with aiohttp.ClientSession() as session, session.post(url, data=text, headers=headers, ssl=trust) as answer:
        assert answer.status == 201, await answer.text()


async def _has_one_revision(stage: Stage, name: str) -> bool:
    return [r["metadata"]["name"] for r in await stage.list(REVISIONS)] == [name]


def _definition(groups: Resource) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"}
    version = {"name": groups.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # The API server asks for a word of its reviewers before it takes a group of Kubernetes' own.
        "metadata": {
            "name": f"podgroups.{groups.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {"group": groups.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


async def _serves(stage: Stage, groups: Resource) -> bool:
    try:
        await stage.list(groups)
    except errors.NotFound:
        return False
    return True


async def _has_groups(stage: Stage, groups: Resource) -> bool:
    return len(await stage.list(groups)) == 2 and len(await stage.list(PODS)) == 4


@pytest.mark.acceptance("SS-01")
async def test_an_operator_that_is_killed_in_the_middle_of_an_update_ends_it_after_its_return(stage, operator_process):
    await stage.apply(storm("pd", role("a", 3), role("b", 2, stateful=True), mode="Pooled"))
    await stage.ready()
    await stage.set_images("pd", "engine:2", "a")
    kept = {p["metadata"]["uid"] for p in await stage.list(PODS, **{"role-name": "b"})}
    await asyncio.sleep(0.5)
    operator_process.kill()
    operator_process.start()
    await stage.ready(within_s=90)
    await stage.until(lambda: _count(stage, 5))  # those that were replaced may be on their way out still
    pods = await stage.list(PODS)
    assert {p["metadata"]["uid"] for p in pods if p["metadata"]["labels"]["role-name"] == "b"} == kept


@pytest.mark.acceptance("TD-01")
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_deleted_service_leaves_nothing(stage, propagation):
    await stage.apply(storm("pd", role("a", 1), role("b", 1, podGroupSize=2)))
    await stage.ready()
    await stage.cluster._call("DELETE", STORMSERVICES, stage.namespace, "pd", body={"propagationPolicy": propagation})
    await stage.until(lambda: _is_empty(stage), 60)


async def test_rollout_on_the_command_line(stage, whole_plane):
    await stage.apply(storm("pd", role("a", 1), replicas=2))

    async def rollout(*arguments: str, code: int = 0) -> str:
        place = [f"--kubeconfig={whole_plane.kubeconfig}", f"--namespace={stage.namespace}"]
        # In a thread: a command has an event loop of its own.
        done = await asyncio.to_thread(CliRunner().invoke, rollouts.app, [*arguments, *place])
        assert done.exit_code == code, done.output
        return done.output

    assert (await rollout("status", "pd")).endswith('stormservice "pd" successfully rolled out\n')
    await rollout("pause", "pd")
    await stage.set_images("pd", "engine:2")
    await stage.until(lambda: _has_revisions(stage, 2))
    assert "0 out of 2 new replicas have been updated" in await rollout("status", "pd", "--no-watch")
    assert "resume it first" in await rollout("undo", "pd", code=1)
    assert "timed out" in await rollout("status", "pd", "--timeout=1", code=1)
    assert "resumed" in await rollout("resume", "pd")
    assert "successfully" in await rollout("status", "pd")
    lines = (await rollout("history", "pd")).splitlines()
    assert lines[0].split() == ["REVISION", "NAME", "STATE", "IMAGES"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2"]
    assert lines[2].split()[2:] == ["current", "a=engine:2"]
    assert "rolled back" in await rollout("undo", "pd")
    assert "successfully" in await rollout("status", "pd")
    await stage.until(lambda: _run(stage, "engine:1"))
    assert "engine:2" in await rollout("history", "pd", "--revision=2")
    assert "not found" in await rollout("status", "nobody", code=1)


async def _run(stage: Stage, image: str) -> bool:
    """No Pod of another image is on its way out any more."""
    return {p["spec"]["containers"][0]["image"] for p in await stage.list(PODS)} == {image}


async def _has_revisions(stage: Stage, count: int) -> bool:
    status = (await stage.get(STORMSERVICES, "pd")).get("status", {})
    return len(await stage.list(REVISIONS)) == count and status.get("currentRevision") != status.get("updateRevision")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_kubectl_shows_desired_ready_updated_and_revision(stage, whole_plane):
    await stage.apply(storm("pd", role("a", 1), replicas=2))
    revision = (await stage.ready())["status"]["updateRevision"]
    command = ["kubectl", f"--kubeconfig={whole_plane.kubeconfig}", "get", "stormservice", "-n", stage.namespace]
    asked = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    head, row = (await asked.communicate())[0].decode().splitlines()
    assert head.split()[:6] == ["NAME", "DESIRED", "READY", "UPDATED", "REVISION", "PAUSED"]
    assert row.split()[:5] == ["pd", "2", "2", "2", revision]


@pytest.mark.acceptance("TD-01")
async def test_a_deleted_namespace_goes(stage):
    await stage.apply(storm("pd", role("a", 1), role("b", 1, podGroupSize=2)))
    await stage.ready()
    await stage.cluster.delete(NAMESPACES, None, stage.namespace)
    await gone(stage.cluster, stage.namespace)


async def _is_empty(stage: Stage) -> bool:
    return await stage.versions() == {}


def test_all_rights_were_used_and_none_was_denied(request, whole_plane):
    # Asked for only when somebody else makes the Service between our last look and our own create.
    out_of_reach = [("", "services", "get")]
    assert_least_rights(request, whole_plane, GRANTS, options=OPTIONS, out_of_reach=out_of_reach)
