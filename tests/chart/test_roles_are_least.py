"""What the chart grants is the table of grants, and nothing else."""

import pytest
from chart_helm import NAMESPACE, render
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


def test_two_controllers_that_need_one_resource_share_a_rule_and_its_rights_are_counted_once():
    grants = (Grant("", "pods", ("list", "watch")), Grant("", "pods", ("list", "patch")))
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch", "watch"]}
    assert roles.rules({"operator": grants}) == {"operator": {"work": [rule]}}
    assert roles.count(grants) == 3
