"""Which StormServices the API server takes, by the rules of the definitions alone."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from storm_cluster import STORMSERVICES, role, storm

from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.sandbox import crds

pytestmark = pytest.mark.integration

ACCEPTED = ""


async def verdict(cluster: Cluster, namespace: str, body: dict[str, Any]) -> str:
    """What the API server says to a new object."""
    try:
        await cluster.create(STORMSERVICES, namespace, body)
    except errors.Invalid as refused:
        return str(refused)
    return ACCEPTED


def gang(**volcano: Any) -> dict[str, Any]:
    return {"schedulingStrategy": {"volcanoSchedulingStrategy": {"minMember": 4, **volcano}}}


async def test_the_example_is_accepted(cluster, namespace):
    example = Path(__file__).parents[3] / "examples" / "stormservice.yaml"
    assert await verdict(cluster, namespace, yaml.safe_load(example.read_text())) == ACCEPTED


GROUPED = {"podGroupSize": 2}


@pytest.mark.acceptance("SS-10")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(storm("s" * 63), id="a name of 63"),
        pytest.param(storm("s" * 20, role("r" * 7, **GROUPED)), id="27 with the role of a PodSet"),
        pytest.param(storm("s" * 20, role("r" * 8), role("r" * 7, **GROUPED)), id="other roles do not count"),
        pytest.param(storm("s" * 20, role("r" * 8, podGroupSize=1)), id="nor does a group of one"),
    ],
)
async def test_names_that_leave_room_are_accepted(cluster, namespace, body):
    assert await verdict(cluster, namespace, body) == ACCEPTED


@pytest.mark.acceptance("SS-10")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(storm("s" * 64), "at most 63", id="a name of 64"),
        pytest.param(storm("s" * 20, role("r" * 8, **GROUPED)), "27 characters together", id="28 with a PodSet's role"),
        pytest.param(
            storm("s" * 20, role("r", **GROUPED), role("r" * 8, **GROUPED)), "27 characters", id="the longest counts"
        ),
    ],
)
async def test_names_that_leave_no_room_are_refused(cluster, namespace, body, said):
    assert said in await verdict(cluster, namespace, body)


@pytest.mark.acceptance("SS-11")
async def test_a_pooled_service_takes_one_replica(cluster, namespace):
    assert "one replica at most" in await verdict(cluster, namespace, storm("two", mode="Pooled", replicas=2))
    assert await verdict(cluster, namespace, storm("one", mode="Pooled", replicas=1)) == ACCEPTED
    with pytest.raises(errors.Invalid, match="one replica at most"):
        await cluster.patch(STORMSERVICES, namespace, "one", {"spec": {"replicas": 2}})
    with pytest.raises(errors.Invalid, match="one replica at most"):
        await cluster.patch(STORMSERVICES, namespace, "one/scale", {"spec": {"replicas": 2}})


@pytest.mark.acceptance("SS-11")
async def test_a_replica_mode_excludes_in_place_updates(cluster, namespace):
    body = storm("s", mode="Replica", updateStrategy={"type": "InPlaceUpdate"})
    assert "excludes InPlaceUpdate" in await verdict(cluster, namespace, body)


@pytest.mark.acceptance("GG-03")
@pytest.mark.acceptance("GG-04")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(
            storm("s", role("a", **gang()), roleset=gang()), "exclude each other", id="strategies on both levels"
        ),
        pytest.param(
            storm("s", role("a"), roleset=gang(minTaskMember={"a": 5})),
            "at least the sum",
            id="more tasks than members",
        ),
        pytest.param(
            storm("s", role("a"), roleset=gang(minTaskMember={"b": 1})), "may name roles only", id="an unknown role"
        ),
        pytest.param(
            storm("s", role("a", **gang(minTaskMember={"b": 1})), role("b")), "that role only", id="another role"
        ),
        pytest.param(storm("s", role("a"), roleset=gang(minTaskMember={"a": 0})), "minTaskMember", id="a task of none"),
        pytest.param(storm("s", role("a"), roleset=gang(minMember=0)), "minMember", id="a gang of none"),
        pytest.param(
            storm(
                "s",
                role("a"),
                roleset={
                    "schedulingStrategy": {
                        "volcanoSchedulingStrategy": {"minMember": 1},
                        "godelSchedulingStrategy": {"minMember": 1},
                    }
                },
            ),
            "at most 1",
            id="two schedulers",
        ),
    ],
)
async def test_a_gang_that_contradicts_itself_is_refused(cluster, namespace, body, said):
    assert said in await verdict(cluster, namespace, body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(storm("s", role("Bad_Name")), "roles[0].name", id="a role name that is no label"),
        pytest.param(storm("s", role("a"), role("a")), "Duplicate value", id="a role twice"),
        pytest.param(storm("s", role("a", podGroupSize=101)), "podGroupSize", id="a group of 101"),
        pytest.param(storm("s", role("a", upgradeOrder=0)), "upgradeOrder", id="an order of 0"),
        pytest.param(storm("s", updateStrategy={"maxSurge": "many"}), "percentage", id="a surge that is no figure"),
        pytest.param(storm("s", updateStrategy={"maxSurge": -1}), "percentage", id="a surge below 0"),
        pytest.param(storm("s", roleset={"roles": []}), "should have at least 1", id="no roles"),
    ],
)
async def test_a_spec_outside_its_bounds_is_refused(cluster, namespace, body, said):
    assert said in await verdict(cluster, namespace, body)


@pytest.mark.acceptance("SS-14")
async def test_the_finalizer_comes_off_an_object_that_was_never_valid(cluster, namespace):
    bad = storm("bad", role("a"), roleset=gang(minTaskMember={"nobody": 9}))
    bad["metadata"]["finalizers"] = ["orchestration.aibrix.ai/stormservice-finalizer"]
    definition = await cluster.get(crds.CRDS, None, "stormservices.orchestration.aibrix.ai")
    await cluster.replace(crds.CRDS, None, definition["metadata"]["name"], without_rules(definition))
    try:
        await wait_for_acceptance(cluster, namespace, bad)
    finally:
        await crds.apply_crds(cluster)
    present = await cluster.get(STORMSERVICES, namespace, "bad")
    changed = await cluster.remove_finalizer(STORMSERVICES, present, bad["metadata"]["finalizers"][0])
    assert not changed["metadata"].get("finalizers")


def without_rules(value: Any) -> Any:
    """A definition as if it had no rules, as in a cluster whose webhook was off."""
    value = copy.deepcopy(value)
    if isinstance(value, dict):
        return {k: without_rules(v) for k, v in value.items() if k != "x-kubernetes-validations"}
    return [without_rules(v) for v in value] if isinstance(value, list) else value


async def wait_for_acceptance(cluster: Cluster, namespace: str, body: dict[str, Any]) -> None:
    """The API server takes a changed definition into use a moment after it has taken it."""
    async with asyncio.timeout(20):
        while await verdict(cluster, namespace, body) != ACCEPTED:  # noqa: ASYNC110  # it tells nobody when it does
            await asyncio.sleep(0.1)
