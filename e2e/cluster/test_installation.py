"""From `helm install` to an answer of a model."""

from __future__ import annotations

from e2e.api import eventually
from e2e.cluster.conftest import FirstInstall
from e2e.cluster.release import Releases


def test_a_claim_is_active_within_a_minute_of_the_installation(first_install: FirstInstall):
    print(f"helm install to the first Active claim: {first_install.seconds:.1f} s, {first_install.busy:.1f} to a core")
    assert first_install.seconds < 60 * first_install.busy


def test_a_client_outside_gets_an_answer_through_the_gateway(first_install: FirstInstall, releases: Releases):
    gateway = releases.gateway()
    reply = eventually("the gateway answers", lambda: (r := gateway.chat("first-model")).status == 200 and r, 60.0)
    assert reply.body["choices"][0]["message"]["content"]
    assert gateway.models().keys() == {"first-model"}


def test_both_replicas_of_operator_and_gateway_are_ready_on_different_nodes(
    first_install: FirstInstall, releases: Releases
):
    releases.wait_available()
    for component in ("operator", "gateway"):
        found = releases.pods(component)
        assert len({pod["spec"]["nodeName"] for pod in found}) == len(found) == 2
        assert {s["restartCount"] for pod in found for s in pod["status"]["containerStatuses"]} == {0}
