"""What the chart grants is the table of grants, and nothing else."""

import json

import pytest
from chart_helm import CHART, NAMESPACE, render
from chart_variants import VARIANTS

from aibrix_operator import roles
from aibrix_operator.cluster.grant import Grant
from aibrix_operator.operator.grants import GRANTS
from aibrix_operator.roles import Where


def granted(rendered, component):
    """(kind of role, its namespace) → its rules, of what is bound to the component's account."""
    found = {}
    for binding in rendered.of_kind("RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        if binding["metadata"]["labels"]["app.kubernetes.io/component"] == component:
            assert subject["namespace"] == NAMESPACE
            place = (binding["roleRef"]["kind"], binding["metadata"].get("namespace"))
            role = rendered.one(*reversed((binding["roleRef"]["name"], binding["roleRef"]["kind"])), place[1])
            found.setdefault(place, []).extend(role["rules"])
    return found


@pytest.mark.parametrize("component", GRANTS)
def test_an_operator_of_all_namespaces_may_what_the_table_says(component):
    places = roles.rules(GRANTS)[component]
    wanted = {("ClusterRole", None): [*places.get("work", []), *places.get("cluster", [])]}
    if "own" in places:
        wanted["Role", NAMESPACE] = places["own"]
    assert granted(render(VARIANTS["pools-elsewhere"]), component) == wanted


@pytest.mark.parametrize("component", GRANTS)
def test_an_operator_of_one_namespace_has_no_cluster_role(component):
    rendered = render(VARIANTS["one-namespace"])
    places = roles.rules(GRANTS)[component]
    assert rendered.of_kind("ClusterRole", "ClusterRoleBinding") == []
    found = granted(rendered, component)
    assert found["Role", "pool-a"] == places["work"]
    assert found.get(("Role", NAMESPACE), []) == places.get("own", [])


def test_what_few_clusters_need_is_granted_for_a_value_alone():
    places = roles.rules(GRANTS)["operator"]
    found = granted(render(VARIANTS["gangs-and-routes"]), "operator")
    chosen = [*places["volcano"], *places["godel"], *places["referenceGrants"]]
    assert found["ClusterRole", None] == [*places["work"], *chosen, *places["cluster"]]
    assert found["Role", "aibrix-system"] == [*places["own"], *places["httpRoutes"]]
    assert set(granted(render(VARIANTS["gangs-and-routes"]), "gateway")) == {("ClusterRole", None)}


def test_the_same_in_one_namespace_and_the_routes_beside_their_gateway():
    rendered = render(VARIANTS["gangs-and-routes-of-one-namespace"])
    places, found = roles.rules(GRANTS)["operator"], granted(rendered, "operator")
    assert rendered.of_kind("ClusterRole", "ClusterRoleBinding") == []
    assert found["Role", "pool-a"] == [*places["work"], *places["coscheduling"], *places["referenceGrants"]]
    assert found["Role", "aibrix-system"] == [*places["own"], *places["httpRoutes"]]


def test_every_option_of_a_grant_is_a_choice_in_the_values():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    schedulers = schema["orchestration"]["properties"]["podGroups"]["items"]["enum"]
    assert {grant.option for its in GRANTS.values() for grant in its if grant.option} == {
        *schedulers,
        "httpRoutes",
        "referenceGrants",
    }


def test_the_counts_of_what_is_granted_are_those_in_the_documentation():
    text = " ".join((CHART.parents[1] / "docs" / "security.md").read_text().split())
    sums = {component: roles.count(roles.given(its)) for component, its in GRANTS.items()}
    assert f"**{sum(sums.values())} pairs of verb and resource**" in text
    assert f"{sums['operator']} of the operator and {sums['gateway']} of the gateway" in text


def test_secrets_are_read_by_name_in_the_namespaces_that_are_listed():
    rendered = render(VARIANTS["artifact-secrets"])
    (rule,) = roles.rules(GRANTS)["operator"]["listed"]
    found = granted(rendered, "operator")
    assert found["Role", "pool-a"] == [{**rule, "resourceNames": ["hub-token"]}]
    assert found["Role", "pool-b"] == [{**rule, "resourceNames": ["hub-token", "bucket"]}]
    assert set(granted(rendered, "gateway")) == {("ClusterRole", None)}


@pytest.mark.parametrize("name", VARIANTS)
def test_no_role_has_a_wildcard_and_no_secret_is_read_but_by_name(name):
    for role in render(VARIANTS[name]).of_kind("Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "secrets" not in rule["resources"] or (role["kind"] == "Role" and rule["resourceNames"])


@pytest.mark.parametrize("name", VARIANTS)
def test_each_component_has_an_account_of_its_own_and_no_token_is_mounted_unasked(name):
    rendered = render(VARIANTS[name])
    users = {}
    for deployment in rendered.of_kind("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        users.setdefault(pod["serviceAccountName"], []).append(deployment["metadata"]["name"])
        assert pod["automountServiceAccountToken"] is False
        assert rendered.one("ServiceAccount", pod["serviceAccountName"])["automountServiceAccountToken"] is False
        holders = [
            container["name"]
            for container in [*pod["containers"], *pod.get("initContainers", [])]
            if any(mount["name"] == "api-access" for mount in container["volumeMounts"])
        ]
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        assert holders == ([] if component == "redis" else [component])
    assert all(len(names) == 1 for names in users.values())
    assert len(users) == len(rendered.of_kind("ServiceAccount"))


ROWS = [
    (Grant("", "pods", ("list",)), Where.WORK),
    (Grant("", "nodes", ("list",)), Where.CLUSTER),
    (Grant("", "secrets", ("get",)), Where.LISTED),
    (Grant("", "secrets", ("get",), namespaced_only=True), Where.OWN),
    (Grant("coordination.k8s.io", "leases", ("get",), namespaced_only=True), Where.OWN),
]


@pytest.mark.parametrize(("grant", "place"), ROWS)
def test_a_right_is_given_in_the_narrowest_place(grant, place):
    assert roles.where(grant) is place


def test_what_is_granted_is_counted_by_default_and_for_each_choice():
    chosen = Grant("g", "gangs", ("list", "create"), option="volcano")
    grants = {"operator": (Grant("", "pods", ("list",)), chosen), "gateway": (Grant("", "pods", ("list", "watch")),)}
    assert roles.counts(grants) == ("pairs of verb and resource by default: operator 1, gateway 2; more with volcano 2")
    assert roles.given(grants["operator"]) == grants["operator"][:1]
    assert roles.given(grants["operator"], ["volcano"]) == grants["operator"]
    assert roles.rules({"operator": [chosen]})["operator"].keys() == {"volcano"}


def test_two_controllers_that_need_one_resource_share_a_rule_and_its_rights_are_counted_once():
    grants = (Grant("", "pods", ("list", "watch")), Grant("", "pods", ("list", "patch")))
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch", "watch"]}
    assert roles.rules({"operator": grants}) == {"operator": {"work": [rule]}}
    assert roles.count(grants) == 3
