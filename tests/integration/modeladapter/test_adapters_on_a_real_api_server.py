"""The operator as a process, a real API server, and engines on addresses of their own."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from functools import partial

import pytest
from adapter_stage import OPTIONS
from suite_rights import assert_least_rights

from aibrix_operator.cluster.resource import (
    ENDPOINT_SLICES,
    EVENTS,
    HTTP_ROUTES,
    MODEL_ADAPTERS,
    REFERENCE_GRANTS,
    SECRETS,
    SERVICES,
)
from aibrix_operator.modeladapter import routes
from aibrix_operator.modeladapter.grants import GRANTS

pytestmark = pytest.mark.integration


@pytest.mark.acceptance("MA-02")
@pytest.mark.acceptance("MA-53")
async def test_an_adapter_is_loaded_on_both_pods(stage):
    engines = [await stage.pod(name) for name in ("b-1", "b-2")]
    await stage.adapter(baseModel="qwen")
    await stage.until_on("b-1", "b-2")
    for engine in engines:
        assert engine.posts() == [{"lora_name": "sql", "lora_path": "org/sql"}]
    status = await stage.status()
    assert (status["candidates"], status["desiredReplicas"], status["readyReplicas"]) == (2, 2, 2)
    assert (await stage.condition("Ready"))[:2] == ("True", "ModelAdapterAvailable")
    service = await stage.cluster.get(SERVICES, stage.namespace, "sql")
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["metadata"]["labels"]["model.aibrix.ai/name"] == "qwen"
    assert len(await stage.slice_addresses()) == 2


@pytest.mark.acceptance("MA-03")
@pytest.mark.acceptance("MA-12")
@pytest.mark.acceptance("MA-51")
async def test_pods_come_and_go(stage):
    await stage.adapter()

    async def has_no_pods():
        return (await stage.condition("Ready"))[1] == "NoReadyPods"

    await stage.until(has_no_pods, "it is told that no Pod is ready")
    assert not await stage.has_service()
    await stage.pod("b-1")
    await stage.until_on("b-1")
    await stage.remove("b-1")
    await stage.until(has_no_pods, "it is told that its Pod is gone")
    assert ((await stage.status())["phase"], await stage.slice_addresses()) == ("Pending", set())


@pytest.mark.acceptance("MA-04")
async def test_an_unready_pod_leaves_and_comes_back(stage):
    engine = await stage.pod("b-1")
    await stage.pod("b-2")
    await stage.adapter()
    await stage.until_on("b-1", "b-2")
    await stage.say("b-1", ready=False)
    await stage.until_on("b-2")
    assert len(await stage.slice_addresses()) == 1
    await stage.say("b-1", ready=True)
    await stage.until_on("b-1", "b-2")
    assert len(engine.posts()) == 1


@pytest.mark.acceptance("MA-05")
@pytest.mark.acceptance("MA-06")
async def test_failures_are_named_noted_and_forgotten(stage):
    engine = await stage.pod("b-1")
    engine.refuses = "CUDA out of memory"
    await stage.adapter()

    async def has_failed():
        return (await stage.status()).get("phase") == "Failed"

    await stage.until(has_failed, "it has failed")
    status, reason, message = await stage.condition("Ready")
    assert (status, reason) == ("False", "ModelAdapterLoadingError")
    assert (
        message == "Loading failed on all pods: pod b-1: failed to load LoRA adapter (status 500): CUDA out of memory"
    )
    annotations = (await stage.read())["metadata"]["annotations"]
    assert annotations["adapter.model.aibrix.ai/retry-count.b-1"] == "1"
    engine.refuses = ""
    await stage.until_on("b-1")  # ten seconds later
    assert not [key for key in (await stage.read())["metadata"].get("annotations", {}) if "retry" in key]


@pytest.mark.acceptance("MA-07")
@pytest.mark.acceptance("MA-08")
async def test_what_is_there_is_not_loaded_and_what_is_lost_is(stage):
    engine = await stage.pod("b-1")
    engine.loaded["sql"] = {}
    await stage.adapter()
    await stage.until_on("b-1")
    assert engine.posts() == []
    before = (await stage.read())["metadata"]["resourceVersion"]
    engine.loaded.clear()

    async def is_back():
        return "sql" in engine.loaded

    await stage.until(is_back, "the engine has it again")
    assert (await stage.read())["metadata"]["resourceVersion"] == before


@pytest.mark.acceptance("MA-13")
async def test_an_instance_that_cannot_be_loaded_again_is_dropped(stage):
    engine = await stage.pod("b-1")
    await stage.pod("b-2")
    await stage.adapter()
    await stage.until_on("b-1", "b-2")
    engine.refuses = "CUDA out of memory"
    engine.loaded.clear()
    await stage.until_on("b-2")
    assert len(await stage.slice_addresses()) == 1


@pytest.mark.acceptance("MA-10")
@pytest.mark.acceptance("MA-11")
async def test_keys_engines_and_ports(stage):
    sglang = await stage.pod("b-1", labels={"model.aibrix.ai/engine": "sglang"})
    other = await stage.pod("b-2", labels={"model.aibrix.ai/engine": "mine", "model.aibrix.ai/port": "9000"})
    await stage.adapter(additionalConfig={"api-key": "k"}, credentialsSecretRef={"name": "unused"})
    await stage.until_on("b-1", "b-2")
    assert {(path, key) for _, path, _, key in sglang.calls} == {
        ("/v1/models", "Bearer k"),
        ("/load_lora_adapter", "Bearer k"),
    }
    assert {path for _, path, _, _ in other.calls} == {"/v1/models", "/v1/load_lora_adapter"}
    apart = await stage.cluster.get(ENDPOINT_SLICES, stage.namespace, "sql.9000")
    assert apart["ports"][0]["port"] == 9000


@pytest.mark.acceptance("MA-20")
@pytest.mark.acceptance("MA-22")
@pytest.mark.acceptance("MA-24")
async def test_one_replica_moves_and_grows(stage):
    engines = {name: await stage.pod(name) for name in ("b-1", "b-2", "b-3")}
    engines["b-1"].loaded["x"] = {}
    await stage.adapter(replicas=1)
    await stage.until_on("b-2")
    assert sum(len(engine.posts()) for engine in engines.values()) == 1
    await stage.remove("b-2")
    await stage.until_on("b-3")
    assert (await stage.condition("Scheduled"))[0] == "True"
    await stage.cluster.patch(MODEL_ADAPTERS, stage.namespace, "sql", {"spec": {"replicas": 2}})
    await stage.until_on("b-1", "b-3")
    await stage.cluster.patch(MODEL_ADAPTERS, stage.namespace, "sql", {"spec": {"replicas": 1}})
    await stage.until_on("b-3")

    async def is_unloaded():
        return "sql" not in engines["b-1"].loaded

    await stage.until(is_unloaded, "the Pod that is wanted no more lets go of it")


@pytest.mark.acceptance("MA-30")
@pytest.mark.acceptance("MA-31")
@pytest.mark.acceptance("MA-32")
async def test_through_the_sidecar_with_credentials_of_a_secret(stage):
    engine = await stage.pod("b-1", sidecar=True)
    direct = await stage.pod("b-2")
    await stage.let_read_secret("keys")
    await stage.adapter(
        artifactURL="s3://bucket/sql",
        credentialsSecretRef={"name": "keys"},
        additionalConfig={"x": "y"},
    )

    async def lacks_the_secret():
        events = (await stage.cluster.list_all(EVENTS, stage.namespace))[0]
        return any("Secret" in event["message"] and "is not there" in event["message"] for event in events)

    await stage.until(lacks_the_secret, "it is told that the Secret is missing")
    value = base64.b64encode(b"AKIA").decode()
    secret = {"metadata": {"name": "keys"}, "data": {"aws_access_key_id": value}}
    await stage.cluster.create(SECRETS, stage.namespace, secret)
    await stage.until_on("b-1", "b-2")
    assert engine.posts("v1/lora_adapter/load") == [
        {
            "lora_name": "sql",
            "artifact_url": "s3://bucket/sql",
            "credentials": {"aws_access_key_id": "AKIA"},
            "additional_config": {"x": "y"},
        }
    ]
    assert direct.posts() == [{"lora_name": "sql", "lora_path": "s3://bucket/sql"}]
    await stage.delete()
    await stage.until(stage.none_left, "it is gone")
    assert engine.posts("v1/lora_adapter/unload") == [{"lora_name": "sql", "cleanup_local": True}]


@pytest.mark.acceptance("MA-40")
@pytest.mark.acceptance("MA-41")
@pytest.mark.acceptance("MA-43")
async def test_deletion_unloads_and_leaves_nothing(stage):
    engine, broken = await stage.pod("b-1"), await stage.pod("b-2")
    broken.refuses = "boom"
    await stage.adapter()
    await stage.until_on("b-1")
    await stage.delete()
    await stage.until(stage.none_left, "it is gone")
    assert (len(engine.posts("unload")), engine.loaded, broken.posts("unload")) == (1, {}, [])

    async def is_collected():
        return not await stage.has_service()

    await stage.until(is_collected, "its Service is collected")


async def test_deleted_and_created_again_at_once(stage):
    engine = await stage.pod("b-1")
    await stage.adapter()
    await stage.until_on("b-1")
    await stage.delete()
    await stage.until(stage.none_left, "the first is gone")
    await stage.adapter(artifactURL="/mnt/sql")
    await stage.until_on("b-1")
    assert engine.loaded["sql"]["lora_path"] == "/mnt/sql"


@pytest.mark.acceptance("MA-50")
@pytest.mark.acceptance("MA-52")
async def test_rest_and_a_new_operator_write_nothing(stage, operator_process):
    engine = await stage.pod("b-1")
    await stage.adapter()
    await stage.until_on("b-1")

    async def versions():
        return [
            (await stage.cluster.get(resource, stage.namespace, "sql"))["metadata"]["resourceVersion"]
            for resource in (MODEL_ADAPTERS, SERVICES, ENDPOINT_SLICES)
        ]

    before, asked = await versions(), len(engine.calls)
    operator_process.kill()
    operator_process.start()

    async def was_asked_twice():
        return len(engine.calls) >= asked + 2

    await stage.until(was_asked_twice, "the new operator has asked the engine twice")
    assert (await versions(), len(engine.posts())) == (before, 1)


async def test_kubectl_waits_and_shows(stage, plane):

    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on PATH")
    await stage.pod("b-1")
    await stage.adapter()
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}

    async def kubectl(*arguments):
        made = await asyncio.create_subprocess_exec(
            program, "-n", stage.namespace, *arguments, env=environment, stdout=asyncio.subprocess.PIPE
        )
        return (await made.communicate())[0].decode()

    assert "condition met" in await kubectl("wait", "--for=condition=Ready", "modeladapter/sql", "--timeout=20s")
    head, row = (await kubectl("get", "modeladapters")).splitlines()
    assert head.split() == ["NAME", "PHASE", "DESIRED", "READY", "CANDIDATES", "MODEL", "PATH", "AGE"]
    assert row.split()[:6] == ["sql", "Running", "1", "1", "1", "huggingface://org/sql"]


# --- clients

SERVES_BASE = {"model.aibrix.ai/name": "base"}


async def test_a_request_reaches_the_pod_that_holds_the_adapter_and_no_other(stage, clients):
    engines = {name: await stage.pod(name, labels=SERVES_BASE) for name in ("b-1", "b-2", "b-3")}
    for name in ("sql", "law"):
        await stage.adapter(name, replicas=1)
    for name in ("sql", "law"):
        await stage.until(partial(_runs_on_one, stage, name), f"{name} runs on one Pod")
    held = {name: (await stage.status(name))["instances"][0] for name in ("sql", "law")}
    assert held["sql"] != held["law"]
    for name, pod in held.items():
        await clients.until(name, 200, pod)
        assert await clients.ask_often(name) == {(200, pod): 40}
    assert {pod for _, pod in await clients.ask_often("base")} == set(engines)  # nothing but the adapter holds them
    for pod, engine in engines.items():
        assert set(engine.asked) - {"base"} == {name for name, holder in held.items() if holder == pod}
        assert engine.strays == []


async def test_requests_follow_an_adapter_to_its_next_pod_and_end_with_it(stage, clients):
    engines = {name: await stage.pod(name, labels=SERVES_BASE) for name in ("b-1", "b-2")}
    await stage.adapter(replicas=1)
    await stage.until_on("b-1")
    await clients.until("sql", 200, "b-1")
    await stage.say("b-1", ready=False)
    await clients.until("sql", 200, "b-2")
    assert await clients.ask_often("sql") == {(200, "b-2"): 40}
    await stage.delete()
    await clients.until("sql", 400)
    assert [engine.strays for engine in engines.values()] == [[], []]


async def _runs_on_one(stage, name):
    status = await stage.status(name)
    return status.get("phase") == "Running" and len(status.get("instances") or ()) == 1


async def test_names_that_others_have_are_told_and_used_once_they_are_free(stage):
    await stage.pod("b-1")
    port = {"port": 80, "protocol": "TCP"}
    await stage.cluster.create(SERVICES, stage.namespace, {"metadata": {"name": "sql"}, "spec": {"ports": [port]}})
    foreign = {"metadata": {"name": "sql"}, "addressType": "IPv4", "endpoints": [], "ports": []}
    await stage.cluster.create(ENDPOINT_SLICES, stage.namespace, foreign)
    await stage.adapter()
    for resource, reason in ((SERVICES, "ServiceCreateError"), (ENDPOINT_SLICES, "EndpointSliceCreateError")):

        async def is_told(reason=reason):
            return (await stage.condition("Ready"))[1] == reason

        await stage.until(is_told, f"it says {reason}")
        await stage.cluster.delete(resource, stage.namespace, "sql")
    await stage.until_on("b-1")


@pytest.mark.acceptance("MA-60")
async def test_a_route_of_aibrix_own_gateway_comes_and_goes_with_the_adapter(stage):
    await stage.install_gateway_api()
    await stage.pod("b-1")
    await stage.adapter(labels={"model.aibrix.ai/name": "sql"})
    grant = routes.grant_name(stage.namespace)

    async def are_there():
        found = await stage.exists(HTTP_ROUTES, "sql-router", "aibrix-system")
        return found and await stage.exists(REFERENCE_GRANTS, grant)

    await stage.until(are_there, "route and grant are made")
    await stage.delete()
    await stage.until(stage.none_left, "the adapter is gone")
    assert not await stage.exists(HTTP_ROUTES, "sql-router", "aibrix-system")
    assert not await stage.exists(REFERENCE_GRANTS, grant)


def test_all_rights_were_used_and_none_was_denied(request, plane):
    assert_least_rights(request, plane, GRANTS, options=OPTIONS)
