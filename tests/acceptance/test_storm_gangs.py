"""PodGroups, made only where their API is served, and what they say about a gang."""

from __future__ import annotations

import pytest
from storm_cluster import played, role, storm

from aibrix_operator.api import orchestration
from aibrix_operator.api.gang import Scheduler
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import key_of
from aibrix_operator.stormservice.resources import POD_GROUPS

VOLCANO = {"schedulingStrategy": {"volcanoSchedulingStrategy": {"minMember": 2, "minTaskMember": {"a": 2}}}}
GROUPS = POD_GROUPS[Scheduler.VOLCANO]


def absent(error):
    """The API server does not answer for PodGroups."""

    def fault(verb, resource, name, body):
        return error if resource.plural == "podgroups" else None

    return fault


def conditions(cluster):
    [roleset] = cluster.rolesets()
    found = {c["type"]: (c["status"], c["reason"]) for c in roleset["status"]["conditions"]}
    return found.get("PodGroupSynced"), found.get("GangSchedulingError")


@pytest.mark.acceptance("GG-01")
@pytest.mark.parametrize(
    ("error", "word"),
    [
        pytest.param(errors.NotFound("no such kind", status=404), "not installed", id="missing"),
        pytest.param(errors.Denied("forbidden", status=403), "may not be read", id="forbidden"),
    ],
)
def test_without_podgroups_pods_are_made_and_nobody_waits_for_volcano(error, word):
    @played()
    async def story(cluster):
        cluster.store.fault = absent(error)
        cluster.apply(storm("pd", role("a", 2), roleset=VOLCANO))
        await cluster.until(cluster.is_ready)
        assert cluster.store.of(GROUPS) == []
        assert all("schedulerName" not in p["spec"] for p in cluster.pods())
        unknown = ("Unknown", "PodGroupObservationDisabled")
        assert conditions(cluster) == (unknown, unknown)
        [roleset] = cluster.rolesets()
        assert any(word in c["message"] for c in roleset["status"]["conditions"])
        assert cluster.condition("GangSchedulingError")["status"] == "Unknown"
        await cluster.rest()

    story()


@pytest.mark.acceptance("GG-01")
@pytest.mark.parametrize("scheduler", ["volcano", "coscheduling", "godel"])
def test_a_missing_right_is_told_once_with_the_value_that_gives_it_and_seldom_asked_again(scheduler):
    @played()
    async def story(cluster):
        asked, is_given = [], False

        def forbid(verb, resource, name, body):
            if resource.plural != "podgroups" or is_given:
                return None
            asked.append(verb)
            return errors.Denied("forbidden", status=403)

        cluster.store.fault = forbid
        strategy = {"schedulingStrategy": {f"{scheduler}SchedulingStrategy": {"minMember": 2}}}
        cluster.apply(storm("pd", role("a", 2), roleset=strategy))
        await cluster.until(cluster.is_ready)
        await cluster.run(280)
        kind = POD_GROUPS[Scheduler(scheduler)]
        message = (
            f"PodGroups of {kind.api_version} may not be read: "
            f"the chart's value orchestration.podGroups gives the right for {scheduler}"
        )
        assert cluster.events("PodGroupObservationDisabled") == [("PodGroupObservationDisabled", message)]
        assert asked == ["list"]
        is_given = True
        await cluster.run(30)
        assert len(cluster.store.of(kind)) == 1

    story()


@pytest.mark.acceptance("GG-01")
@played()
async def test_a_podgroup_is_made_once_and_its_pods_say_so(cluster):
    named = role("named", 1)
    named["template"]["spec"]["schedulerName"] = "mine"
    cluster.apply(storm("pd", role("a", 2), named, roleset=VOLCANO))
    await cluster.until(cluster.is_ready)
    [group], [roleset] = cluster.store.of(GROUPS), cluster.rolesets()
    name = roleset["metadata"]["name"]
    assert group["metadata"]["name"] == name
    assert group["metadata"]["labels"] == {"roleset-name": name}
    assert group["metadata"]["ownerReferences"][0]["uid"] == roleset["metadata"]["uid"]
    assert group["spec"] == {"minMember": 2, "minTaskMember": {"a": 2}}
    assert cluster.events("PodGroupSynced") == [("PodGroupSynced", f"pod group {name} synced")]
    for pod in cluster.pods():
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        for mark, value in (("scheduling.k8s.io/group-name", name), ("volcano.sh/task-spec", labels["role-name"])):
            assert labels[mark] == annotations[mark] == value
        assert pod["spec"]["schedulerName"] == ("mine" if labels["role-name"] == "named" else "volcano")
    await cluster.rest()


@pytest.mark.acceptance("GG-02")
@played()
async def test_a_podgroup_comes_back_and_goes_with_its_roleset(cluster):
    cluster.apply(storm("pd", role("a", 2), roleset=VOLCANO))
    await cluster.until(cluster.is_ready)
    [group] = cluster.store.of(GROUPS)
    cluster.store.change(GROUPS, key_of(group), {"spec": {"minMember": 7}})
    await cluster.run(20)
    assert cluster.store.of(GROUPS)[0]["spec"] == group["spec"]
    cluster.store.delete(GROUPS, key_of(group))
    await cluster.run(20)
    assert cluster.store.of(GROUPS)[0]["spec"] == group["spec"]
    cluster.edit("pd", replicas=0)
    await cluster.until(lambda: not cluster.store.of(GROUPS))


@pytest.mark.acceptance("GG-02")
@played()
async def test_a_podgroup_that_is_refused_is_told_tried_at_each_look_and_holds_no_pod_up(cluster):
    tried = []

    def refuse(verb, resource, name, body):
        if resource != GROUPS or verb != "create":
            return None
        tried.append(verb)
        return errors.Invalid("minMember: too many", status=422)

    cluster.store.fault = refuse
    cluster.apply(storm("pd", role("a", 2), roleset=VOLCANO))
    await cluster.run(60)
    assert len(cluster.pods()) == 2
    failed = (("False", "PodGroupSyncFailed"), ("True", "PodGroupSyncFailed"))
    assert conditions(cluster) == failed
    assert "too many" in cluster.condition("GangSchedulingError")["message"]
    assert 3 <= len(tried) <= 5
    written = len(cluster.store.writes)
    await cluster.run(60)
    assert len(cluster.store.writes) == written
    cluster.store.fault = lambda *_: None
    await cluster.run(20)
    assert len(cluster.store.of(GROUPS)) == 1
    assert conditions(cluster)[0] == ("True", "PodGroupSynced")


@pytest.mark.acceptance("GG-02")
@pytest.mark.parametrize("is_ours", [True, False], ids=["an earlier try of ours made it", "another has the name"])
def test_a_podgroup_whose_name_is_taken_is_a_failure_only_where_another_has_it(is_ours):
    @played()
    async def story(cluster):
        def taken(verb, resource, name, body):
            if resource != GROUPS or verb != "create":
                return None
            cluster.store.lost = lambda *_: None
            if not is_ours:
                cluster.store.change(GROUPS, ("default", name), {"metadata": {"labels": None, "ownerReferences": []}})
            return errors.AlreadyExists(f'"{name}" already exists', status=409)

        cluster.store.lost = taken
        cluster.apply(storm("pd", role("a", 2), roleset=VOLCANO))
        await cluster.run(5)
        expected = ("True", "PodGroupSynced") if is_ours else ("False", "PodGroupSyncFailed")
        assert conditions(cluster)[0] == expected
        await cluster.run(40)
        assert conditions(cluster)[0] == expected

    story()


@pytest.mark.acceptance("GG-03")
@played()
async def test_a_group_of_pods_has_a_podgroup_of_its_own(cluster):
    strategy = {"schedulingStrategy": {"volcanoSchedulingStrategy": {"minMember": 4}}}
    cluster.apply(storm("pd", role("a", 2, podGroupSize=4, **strategy), mode="Pooled"))
    await cluster.until(cluster.is_ready)
    groups = {g["metadata"]["name"] for g in cluster.store.of(GROUPS)}
    assert len(groups) == 2
    assert {p["metadata"]["labels"]["scheduling.k8s.io/group-name"] for p in cluster.pods()} == groups
    assert {p["metadata"]["labels"][orchestration.PODSET_LABEL] for p in cluster.pods()} == groups


@pytest.mark.acceptance("GG-05")
@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param(
            {
                "phase": "Pending",
                "conditions": [{"type": "Unschedulable", "status": "True", "reason": "NotEnoughPods"}],
            },
            ("True", "NotEnoughPods"),
            id="unschedulable with a reason",
        ),
        pytest.param(
            {"phase": "Pending", "conditions": [{"type": "Unschedulable", "status": "True"}]},
            ("True", "PodGroupUnschedulable"),
            id="unschedulable without one",
        ),
        pytest.param({"phase": "Unknown"}, ("True", "PodGroupUnknown"), id="phase Unknown"),
        pytest.param({"conditions": "yes"}, ("True", "PodGroupStatusMalformed"), id="conditions that are no list"),
        pytest.param({"conditions": ["yes"]}, ("True", "PodGroupStatusMalformed"), id="a condition that is no object"),
        pytest.param({"phase": "Running"}, ("False", "GangSchedulingHealthy"), id="running"),
    ],
)
def test_what_a_podgroup_says_is_told_on_both_levels(status, said):
    @played()
    async def story(cluster):
        cluster.apply(storm("pd", role("a", 2), roleset=VOLCANO, mode="Pooled"))
        await cluster.until(cluster.is_ready)
        cluster.store.change(GROUPS, key_of(cluster.store.of(GROUPS)[0]), {"status": status})
        await cluster.run(20)
        assert conditions(cluster) == (("True", "PodGroupSynced"), said)
        above = cluster.condition("GangSchedulingError")
        assert above["status"] == said[0]
        assert above["reason"] == ("GangSchedulingError" if said[0] == "True" else "GangSchedulingHealthy")
        roles = cluster.rolesets()[0]["spec"]["roles"]
        cluster.edit("pd", template={"spec": {"roles": roles, "schedulingStrategy": None}})
        await cluster.run(20)
        assert conditions(cluster) == (None, None)
        assert cluster.condition("GangSchedulingError") is None

    story()


@played()
async def test_a_definition_that_drops_min_task_member_is_told_and_not_written_to_for_ever(cluster):
    cluster.apply(storm("pd", role("a", 2), roleset=VOLCANO))
    await cluster.until(cluster.is_ready)
    cluster.store.change(GROUPS, key_of(cluster.store.of(GROUPS)[0]), {"spec": {"minTaskMember": None}})
    await cluster.run(20)
    assert conditions(cluster)[1] == ("True", "MinTaskMemberNotEnforced")
    await cluster.rest()


@pytest.mark.acceptance("GG-06")
@pytest.mark.parametrize(
    ("scheduler", "field", "label", "is_annotated"),
    [
        (Scheduler.GODEL, "godelSchedulingStrategy", "godel.bytedance.com/pod-group-name", True),
        (Scheduler.COSCHEDULING, "coschedulingSchedulingStrategy", "scheduling.x-k8s.io/pod-group", False),
    ],
)
def test_other_schedulers_have_groups_and_marks_too(scheduler, field, label, is_annotated):
    @played()
    async def story(cluster):
        cluster.apply(storm("pd", role("a", 2), roleset={"schedulingStrategy": {field: {"minMember": 2}}}))
        await cluster.until(cluster.is_ready)
        [group] = cluster.store.of(POD_GROUPS[scheduler])
        assert (group["apiVersion"].split("/")[0], group["spec"]) == (POD_GROUPS[scheduler].group, {"minMember": 2})
        for pod in cluster.pods():
            assert pod["metadata"]["labels"][label] == group["metadata"]["name"]
            assert (label in pod["metadata"].get("annotations", {})) == is_annotated
        assert cluster.condition("GangSchedulingError") is None

    story()
