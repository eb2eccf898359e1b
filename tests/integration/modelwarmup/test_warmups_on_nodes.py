"""ModelWarmups with the real scheduler, Job, TTL and garbage-collector controllers; only the kubelets are ours."""

from __future__ import annotations

import asyncio

import pytest
from suite_rights import assert_least_rights
from warmup_stage import ENABLED, FAILS, POOL, SLOW, UNPULLABLE, in_force, told

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import EVENTS, JOBS, MODEL_WARMUPS, NAMESPACES, NODES, Resource
from aibrix_operator.modelwarmup.grants import GRANTS
from aibrix_operator.sandbox.kubectl import Kubectl

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

KIND = "ModelWarmup"
QUOTAS = Resource("", "v1", "resourcequotas")


@pytest.mark.acceptance("MW-10")
@pytest.mark.acceptance("MW-11")
async def test_each_node_pulls_and_runs_what_it_is_to_have(stage):
    n1, n2 = await stage.node("n1"), await stage.node("n2")
    custom = {
        "initContainers": [{"name": "check", "image": "checker", "command": ["true"]}],
        "containers": [{"name": "tool", "image": "tool", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    await stage.apply("plain", n1, n2)
    plain = await stage.ended("plain", "Succeeded")
    assert in_force(plain) == [("Complete", "ImagePreloadSucceeded")]
    assert (plain["desiredNodes"], plain["succeededNodes"], plain["failedNodes"]) == (2, 2, 0)
    assert (plain["targets"], plain["progress"]) == ([], "2/2")
    assert sorted(stage.kubelets.pulled) == [(n1, "good"), (n2, "good")]
    await stage.apply("whole", n1, custom=custom)
    assert in_force(await stage.ended("whole", "Succeeded")) == [("Complete", "WarmupSucceeded")]
    assert stage.kubelets.pulled[2:] == [(n1, "checker"), (n1, "good"), (n1, "tool")]

    async def are_told():
        events, _ = await stage.cluster.list_all(EVENTS, stage.namespace)
        ours = {(e["involvedObject"]["name"], e["reason"]) for e in events if e["involvedObject"]["kind"] == KIND}
        return ours == {(name, reason) for name in ("plain", "whole") for reason in ("Started", "Succeeded")}

    await stage.until(are_told)


async def test_kubectl_waits_and_tells_progress_at_a_glance(stage, plane):
    await stage.apply("plain", await stage.node("n1"), await stage.node("n2"))
    kubectl, own = Kubectl(plane.kubeconfig), f"--namespace={stage.namespace}"
    waiting = ("wait", "modelwarmup/plain", "--for=condition=Complete", "--timeout=60s", own)
    assert "condition met" in await asyncio.to_thread(kubectl.run, *waiting)
    head, row = (await asyncio.to_thread(kubectl.run, "get", "modelwarmups", own)).splitlines()
    told_of = dict(zip(head.split(), row.split(), strict=False))
    assert (told_of["PHASE"], told_of["PROGRESS"]) == ("Succeeded", "2/2")


@pytest.mark.acceptance("MW-13")
@pytest.mark.acceptance("MW-14")
async def test_nodes_come_to_their_turn_by_name(stage):
    nodes = [await stage.node(name) for name in ("n3", "n1", "n2")]
    targets = [{"nodes": {"names": nodes}}, {"nodes": {"names": [nodes[0]]}}]
    await stage.apply("slow", *nodes, image=SLOW, targets=targets, policies={"parallelism": 1})
    seen = []
    for count in (1, 2, 3):
        (pod,) = await stage.until(lambda: _running(stage))
        seen.append(pod["spec"]["nodeName"])
        await stage.until(lambda: _is_running_on(stage, "slow", 1))
        assert len(await stage.jobs()) == count
        await stage.kubelets.end(pod)
        await stage.until(lambda pod=pod: _gone_from(stage, pod))
    await stage.ended("slow", "Succeeded")
    assert seen == sorted(nodes)


async def _running(stage):
    return [pod for pod in await stage.pods() if pod["status"].get("phase") == "Running"]


async def _gone_from(stage, pod):
    return pod["metadata"]["uid"] not in [one["metadata"]["uid"] for one in await _running(stage)]


@pytest.mark.acceptance("MW-15")
@pytest.mark.acceptance("MW-16")
async def test_nodes_that_may_not_be_used_or_are_not_there_fail_and_the_others_run(stage):
    good = await stage.node("good")
    closed = await stage.node("closed", **{ENABLED: None})
    control = await stage.node("control", **{"node-role.kubernetes.io/control-plane": ""})
    await stage.apply("mixed", good, closed, control, "nowhere")
    status = await stage.ended("mixed", "Degraded")
    assert told(status) == {
        closed: ("Failed", "NodeNotAuthorized"),
        control: ("Failed", "NodeNotAuthorized"),
        "nowhere": ("Failed", "NodeNotFound"),
    }
    assert all("jobName" not in item for item in status["targets"])
    assert list(await stage.jobs()) == [good]
    await stage.apply("absent", "later")
    await stage.ended("absent", "Failed")
    await stage.apply("selected")
    assert told(await stage.ended("selected", "Degraded")) == {
        closed: ("Failed", "NodeNotAuthorized"),
        control: ("Failed", "NodeNotAuthorized"),
    }
    await stage.cluster.patch(NAMESPACES, None, stage.namespace, {"metadata": {"labels": {POOL: None}}})
    # The operator may hear of the warmup before it hears of the namespace; a Job that it makes then does not end first.
    await stage.apply("poolless", good, image=SLOW)
    assert told(await stage.ended("poolless", "Failed")) == {good: ("Failed", "NodeNotAuthorized")}


@pytest.mark.acceptance("MW-17")
@pytest.mark.acceptance("MW-24")
async def test_a_selector_waits_for_nodes_until_the_warmup_is_over(stage):
    await stage.apply("waiting", image=SLOW)
    assert in_force(await stage.ended("waiting", "Pending")) == [("Progressing", "NoTargetsResolved")]
    n1 = await stage.node("n1")
    await stage.until(lambda: _running(stage))
    n2 = await stage.node("n2")
    pods = await stage.until(lambda: _both(stage))
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == [n1, n2]
    for pod in pods:
        await stage.kubelets.end(pod)
    await stage.ended("waiting", "Succeeded")
    before = await stage.versions()
    await stage.node("n3")
    await stage.apply("after", n1)
    await stage.ended("after", "Succeeded")
    assert before.items() <= (await stage.versions()).items()


async def _both(stage):
    running = await _running(stage)
    return running if len(running) == 2 else None


@pytest.mark.acceptance("MW-18")
async def test_a_container_that_fails_is_tried_again_and_fails_its_node(stage):
    n1 = await stage.node("n1")
    await stage.apply("failing", n1, image=FAILS, policies={"retryLimit": 1})
    await stage.until(lambda: _value(len(stage.kubelets.attempts) == 1))
    assert told(await stage.ended("failing", "Running")) == {n1: ("Running", "")}
    status = await stage.ended("failing", "Failed", 60)
    assert told(status) == {n1: ("Failed", "BackoffLimitExceeded")}
    assert len(stage.kubelets.attempts) == 2


async def _value(value):
    return value


@pytest.mark.acceptance("MW-19")
@pytest.mark.acceptance("MW-20")
async def test_a_taint_or_an_image_that_cannot_be_pulled_ends_with_the_deadline(stage):
    tainted, n1 = await stage.node("tainted", taint=True), await stage.node("n1")
    await stage.apply("pending", tainted, policies={"jobTimeoutSeconds": 2})
    await stage.apply("unpullable", n1, image=UNPULLABLE, policies={"jobTimeoutSeconds": 2})
    assert told(await stage.ended("pending", "Failed")) == {tainted: ("Failed", "DeadlineExceeded")}
    assert told(await stage.ended("unpullable", "Failed")) == {n1: ("Failed", "DeadlineExceeded")}
    assert stage.kubelets.attempts == []


@pytest.mark.acceptance("MW-21")
async def test_jobs_vanish_after_their_time_and_none_comes_back(stage):
    n1, n2 = await stage.node("n1"), await stage.node("n2")
    await stage.apply("short", n1, n2, policies={"ttlSecondsAfterFinished": 1})
    status = await stage.ended("short", "Succeeded")
    await stage.until(lambda: _none(stage.jobs))
    await stage.until(lambda: _none(stage.pods))
    version = (await stage.warmup("short"))["metadata"]["resourceVersion"]
    await stage.node("n3")  # whatever happens to nodes now
    await stage.apply("after", n1)
    await stage.ended("after", "Succeeded")
    whole = await stage.warmup("short")
    assert (whole["status"], whole["metadata"]["resourceVersion"]) == (status, version)
    assert list(await stage.jobs()) == [n1]


async def _none(listed):
    return not await listed()


@pytest.mark.acceptance("MW-22")
@pytest.mark.acceptance("MW-23")
async def test_a_node_that_goes_or_closes_meanwhile_loses_its_job(stage):
    n1, n2, n3 = [await stage.node(name) for name in ("n1", "n2", "n3")]
    await stage.apply("selected", image=SLOW)
    await stage.apply("named", n1, n2, n3, image=SLOW)
    await stage.until(lambda: _count(stage, 6))
    await stage.cluster.delete(NODES, None, n1)
    await stage.label(n2, **{ENABLED: "false"})

    async def is_seen():
        selected, named = told(await stage.status("selected")), told(await stage.status("named"))
        left = {n2: ("Failed", "NodeNotAuthorized"), n3: ("Running", "")}
        return selected == left and named == left | {n1: ("Failed", "NodeNotFound")}

    await stage.until(is_seen)
    await stage.until(lambda: _count(stage, 2))
    assert (await stage.status("selected"))["desiredNodes"] == 2


async def _count(stage, count):
    found, _ = await stage.cluster.list_all(JOBS, stage.namespace)
    return len(found) == count


@pytest.mark.acceptance("MW-25")
@pytest.mark.acceptance("MW-27")
async def test_a_deleted_job_comes_back_and_anothers_is_left_alone(stage):
    n1 = await stage.node("n1")
    made = await stage.apply("slow", n1, image=SLOW)
    (pod,) = await stage.until(lambda: _running(stage))
    job = (await stage.jobs())[n1]
    foreign = {
        "metadata": {"name": "foreign", "labels": {"model.aibrix.ai/warmup": made["metadata"]["uid"]}},
        "spec": {"suspend": True, "template": job["spec"]["template"] | {"metadata": {}}},
    }
    await stage.cluster.create(JOBS, stage.namespace, foreign)
    await stage.cluster.delete(JOBS, stage.namespace, job["metadata"]["name"])

    async def is_back():
        found = (await stage.jobs()).get(n1)
        return found is not None and found["metadata"]["uid"] != job["metadata"]["uid"]

    await stage.until(is_back)
    await stage.until(lambda: _gone_from(stage, pod))
    (again,) = await stage.until(lambda: _running(stage))
    await stage.kubelets.end(again)
    status = await stage.ended("slow", "Succeeded")
    assert status["desiredNodes"] == 1
    assert "foreign" in [j["metadata"]["name"] for j in (await stage.cluster.list_all(JOBS, stage.namespace))[0]]


@pytest.mark.acceptance("MW-26")
async def test_a_name_that_another_job_has_is_told_and_holds_nobody_else_up(stage):
    n1, n2 = await stage.node("n1"), await stage.node("n2")
    await stage.apply("first", n1, n2, image=SLOW, policies={"parallelism": 1})
    job = (await stage.until(stage.jobs))[n1]
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    given_away = {"metadata": {"ownerReferences": [], "labels": {"model.aibrix.ai/warmup": "another"}}}
    await stage.cluster.patch(JOBS, stage.namespace, name, given_away)

    async def is_told():
        items = [item for item in (await stage.status("first"))["targets"] if item["nodeName"] == n1]
        return items and items[0]["phase"] == "Pending" and "not controlled by ModelWarmup" in items[0]["message"]

    await stage.until(is_told)
    await stage.until(lambda: _has(stage, n2))
    kept = await stage.cluster.get(JOBS, stage.namespace, name)
    assert kept["metadata"]["uid"] == uid
    await stage.cluster.delete(JOBS, stage.namespace, name)

    async def on_n2():
        return [pod for pod in await _running(stage) if pod["spec"]["nodeName"] == n2]

    (second,) = await stage.until(on_n2)
    await stage.kubelets.end(second)
    await stage.until(lambda: _is_ours(stage, n1, uid))


async def _has(stage, node):
    return node in await stage.jobs()


async def _is_ours(stage, node, former):
    found = (await stage.jobs()).get(node)
    return found is not None and found["metadata"]["uid"] != former


@pytest.mark.acceptance("MW-28")
@pytest.mark.acceptance("MW-29")
async def test_jobs_go_with_their_warmup_and_a_namesake_has_others(stage):
    n1, name = await stage.node("n1"), "w" * 63
    await stage.apply(name, n1, image=SLOW)
    await stage.apply("w" * 62 + "x", n1, image=SLOW)
    await stage.until(lambda: _count(stage, 2))
    before = {pod["metadata"]["uid"] for pod in await stage.until(lambda: _both(stage))}
    await stage.cluster.delete(MODEL_WARMUPS, stage.namespace, name)
    await stage.apply(name, n1, image=SLOW)

    async def is_replaced():
        pods = {pod["metadata"]["uid"] for pod in await _running(stage)}
        return len(pods) == 2 and len(pods & before) == 1

    await stage.until(is_replaced)


@pytest.mark.acceptance("MW-30")
@pytest.mark.acceptance("MW-33")
async def test_a_killed_operator_is_followed_by_one_that_makes_nothing_twice(stage, operator_process):
    n1, n2 = await stage.node("n1"), await stage.node("n2")
    await stage.apply("slow", n1, n2, image=SLOW)
    await stage.until(stage.jobs)
    operator_process.kill()
    pods = await stage.until(lambda: _any_running(stage))
    for pod in pods:
        await stage.kubelets.end(pod)
    operator_process.start()
    await stage.until(lambda: _end_all(stage))
    status = await stage.ended("slow", "Succeeded")
    assert (status["desiredNodes"], status["succeededNodes"]) == (2, 2)
    assert len(await stage.pods()) == 2
    await stage.apply("busy", n1, n2, image=SLOW)
    await stage.until(lambda: _both(stage))
    await stage.until(lambda: _is_running_on(stage, "busy", 2))
    before = await stage.at_rest()
    for beat in range(10):
        condition = {"type": "Ready", "status": "True", "reason": f"Beat{beat}", "message": ""}
        for node in (n1, n2):
            current = await stage.cluster.get(NODES, None, node)
            version = current["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "status": {"conditions": [condition]}}
            await stage.cluster._call("PATCH", NODES, None, node, subresource="status", body=patch)
        await asyncio.sleep(0.2)  # heartbeats, which nothing of ours is to follow
    assert await stage.versions() == before


async def _any_running(stage):
    return await _running(stage)


async def _end_all(stage):
    for pod in await _running(stage):
        await stage.kubelets.end(pod)
    return (await stage.status("slow")).get("phase") == "Succeeded"


async def _is_running_on(stage, name, count):
    return (await stage.status(name)).get("activeNodes") == count


@pytest.mark.acceptance("MW-35")
async def test_a_quota_is_told_and_lifted_without_a_hand(stage):
    n1 = await stage.node("n1")
    await stage.cluster.create(
        QUOTAS, stage.namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    )

    async def is_known():
        found = await stage.cluster.get(QUOTAS, stage.namespace, "q")
        return (found.get("status") or {}).get("hard")

    await stage.until(is_known)
    await stage.apply("limited", n1)

    async def is_told():
        status = await stage.status("limited")
        return status.get("targets") and told(status).get(n1) == ("Pending", "JobRefused") and status

    status = await stage.until(is_told)
    assert "exceeded quota" in status["targets"][0]["message"]
    bad = {"containers": [{"name": "bad", "image": "good", "resources": {"limits": {"cpu": "much"}}}]}
    await stage.apply("bad", n1, custom=bad)
    with pytest.raises(errors.Invalid):
        await stage.apply("worse", n1, custom={"containers": [{"name": "bad", "image": " "}]})
    await stage.cluster.delete(QUOTAS, stage.namespace, "q")
    await stage.ended("limited", "Succeeded")

    async def is_explained():
        targets = (await stage.status("bad")).get("targets") or ()
        return [t for t in targets if "quantit" in t["message"]]

    await stage.until(is_explained)
    assert (await stage.status("bad"))["phase"] == "Running"


async def test_weights_tell_how_much_they_fetched_and_why_they_did_not(stage):
    n1, n2 = await stage.node("n1"), await stage.node("n2")
    weights = {"image": SLOW, "artifacts": [{"url": "hf://org/name", "path": "org/name"}]}
    await stage.apply("weights", n1, n2, imagePreload=None, weights=weights)
    pods = await stage.until(lambda: _both(stage))
    for pod in pods:
        if pod["spec"]["nodeName"] == n1:
            await stage.kubelets.end(pod, message='{"bytes": 5000}')
        else:
            await _ends_with_42(stage, pod)
    status = await stage.ended("weights", "Degraded")
    assert status["fetchedBytes"] == 5100
    (failed,) = status["targets"]
    assert (failed["nodeName"], failed["reason"], failed["message"]) == (n2, "NoRoom", "the disk has 1 MB free")


async def _ends_with_42(stage, pod):
    message = '{"bytes": 100, "reason": "NoRoom", "message": "the disk has 1 MB free"}'
    ended = {"terminated": {"exitCode": 42, "reason": "Error", "message": message}}
    status = {"name": "weights-0", "image": SLOW, "imageID": "i", "ready": False, "restartCount": 0, "state": ended}
    await stage.kubelets._say(pod, "Failed", [status])


def test_all_rights_were_used_and_none_was_denied(request, plane):
    assert_least_rights(request, plane, GRANTS)
