"""What the agent writes into a Pod's status, and when it has nothing to write."""

from __future__ import annotations

from typing import Any

import pytest

from aibrix_operator.sandbox import pod_status

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
PLACES = {"address": "127.20.1.1", "node_address": "127.20.255.1"}


def make_pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "runtime", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"claim.model.aibrix.ai/pool": "demo"}},
        "spec": {"nodeName": "node-1", "containers": [container], **spec},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }


def running(pod: dict[str, Any], *, ready: bool = True, restarts: int = 0, now: str = EARLIER) -> dict[str, Any]:
    return pod_status.running(pod, **PLACES, ready=ready, restarts=restarts, now=now)


def verdict(status: dict[str, Any], kind: str) -> tuple[str, str | None, str | None]:
    (found,) = (condition for condition in status["conditions"] if condition["type"] == kind)
    return found["status"], found.get("lastTransitionTime"), found.get("reason")


def test_a_running_pod_has_its_address_and_keeps_the_schedulers_condition():
    status = running(make_pod())
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "127.20.1.1", "127.20.255.1")
    assert verdict(status, "PodScheduled")[0] == "True"
    assert verdict(status, "Ready") == ("True", EARLIER, None)
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": EARLIER}}


def test_nothing_is_written_again_while_nothing_changes():
    pod = make_pod(initContainers=[{"name": "init"}])
    assert pod_status.differs(pod, running(pod))
    pod["status"] |= running(pod)
    assert not pod_status.differs(pod, running(pod, now=NOW))


def test_what_the_api_server_adds_by_itself_is_not_written_again_for_ever():
    pod = make_pod()
    pod["status"] |= running(pod) | {"qosClass": "BestEffort"}
    for container in pod["status"]["containerStatuses"]:
        container["lastState"] = {}
    assert not pod_status.differs(pod, running(pod, now=NOW))
    del pod["status"]["containerStatuses"][0]["image"]
    assert pod_status.differs(pod, running(pod, now=NOW))


def test_a_condition_gets_a_new_time_only_when_it_flips():
    pod = make_pod()
    pod["status"] |= running(pod)
    status = running(pod, ready=False, now=NOW)
    assert pod_status.differs(pod, status)
    assert verdict(status, "Ready") == ("False", NOW, "ContainersNotReady")
    assert verdict(status, "Initialized") == ("True", EARLIER, None)
    assert not status["containerStatuses"][0]["ready"]


def test_a_restarted_container_counts_up_and_starts_anew():
    pod = make_pod()
    pod["status"] |= running(pod)
    (container,) = running(pod, restarts=1, now=NOW)["containerStatuses"]
    assert (container["restartCount"], container["state"]) == (1, {"running": {"startedAt": NOW}})


def test_a_jobs_pod_succeeds_with_exit_code_zero():
    pod = make_pod()
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j"}]
    status = pod_status.succeeded(pod, **PLACES, now=NOW)
    assert pod_status.runs_to_completion(pod)
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert verdict(status, "Ready") == ("False", NOW, "PodCompleted")


def test_gpus_of_all_containers_count():
    pod = make_pod()
    pod["spec"]["containers"].append({"name": "helper"})
    assert pod_status.gpu_count(pod) == 2


def test_only_plain_values_of_the_environment_are_taken():
    pod = make_pod()
    pod["spec"]["containers"][0]["env"] = [
        {"name": "A", "value": "1"},
        {"name": "EMPTY"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    assert pod_status.literal_environment(pod) == {"A": "1", "EMPTY": ""}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({}, 30.0, id="the default"),
        pytest.param({"deletionGracePeriodSeconds": 5}, 5.0, id="what the deletion asks for"),
    ],
)
def test_the_grace_of_a_pod(metadata, expected):
    pod = make_pod()
    pod["metadata"] |= metadata
    assert pod_status.grace_s(pod) == expected


def test_a_pod_on_its_way_out_is_not_ready():
    pod = make_pod()
    pod["status"] |= running(pod)
    assert pod_status.is_ready(pod)
    pod["metadata"]["deletionTimestamp"] = NOW
    assert not pod_status.is_ready(pod)
