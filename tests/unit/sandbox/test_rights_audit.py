"""What an audit log says of rights: used, denied, and granted without use."""

import json

import pytest
import yaml

from aibrix_operator.cluster.grant import Grant
from aibrix_operator.sandbox import rights_audit

GRANTS = {
    "operator": (
        Grant("", "pods", ("list", "watch")),
        Grant("g", "things/status", ("patch",)),
        Grant("g", "podgroups", ("list",), option="gangs"),
    )
}
ACCOUNTS = {"op": "operator"}


def event(verb, resource, *, user="system:serviceaccount:ns:op", group=None, decision="allow", **more):
    asked = {"resource": resource} | ({"apiGroup": group} if group else {}) | more.pop("ref", {})
    event = {"verb": verb, "user": {"username": user}, "objectRef": asked}
    return json.dumps(event | {"annotations": {"authorization.k8s.io/decision": decision}} | more).encode()


def read(*events):
    return rights_audit.read(events, ACCOUNTS)


STATUS = event("patch", "things", group="g", ref={"subresource": "status"})
USED = (event("list", "pods"), event("watch", "pods"), STATUS)


def test_what_is_used_and_granted_is_least():
    found = read(*USED)
    assert not rights_audit.is_denied(found)
    assert not rights_audit.is_unused(found, GRANTS)
    assert rights_audit.report(found, GRANTS).splitlines() == [
        "operator: 3 granted, 3 of them used",
        "pairs of verb and resource by default: operator 3; more with gangs 1",
    ]


def test_what_is_denied_or_never_used_is_named():
    found = read(event("list", "pods"), STATUS, event("get", "secrets", decision="forbid"))
    assert rights_audit.is_denied(found)
    assert rights_audit.is_unused(found, GRANTS)
    assert rights_audit.report(found, GRANTS).splitlines() == [
        "operator: 3 granted, 2 of them used",
        "  denied 1 times: get secrets",
        "  granted and not used: watch pods",
        "pairs of verb and resource by default: operator 3; more with gangs 1",
    ]


@pytest.mark.parametrize(
    "passed_over",
    [
        event("list", "nodes", user="system:serviceaccount:ns:other"),
        event("list", "nodes", user="op"),
        event("create", "selfsubjectaccessreviews", group="authorization.k8s.io"),
        json.dumps({"verb": "get", "user": {"username": "system:serviceaccount:ns:op"}, "requestURI": "/api"}).encode(),
        b'{"verb": "li',
        event("list", "nodes", userAgent="aibrix-operator/0.8.0 (doctor)"),
    ],
    ids=["another account", "a user of that name", "everybody's right", "no resource", "half a line", "a tool of ours"],
)
def test_other_requests_are_passed_over(passed_over):
    assert not read(passed_over)["operator"].allowed


def test_a_component_is_told_from_a_tool_of_ours_by_what_it_says_of_itself():
    found = read(event("list", "pods", userAgent="aibrix-operator/0.8.0"), event("list", "pods", userAgent="kopf/1.45"))
    assert found["operator"].allowed == {("", "pods", "list"): 2}


def test_an_impersonated_account_is_the_one_that_asked():
    found = read(event("list", "pods", user="admin", impersonatedUser={"username": "system:serviceaccount:ns:op"}))
    assert list(found["operator"].allowed) == [("", "pods", "list")]


def test_the_command_compares_with_the_table_of_grants(tmp_path, capsys):
    log = tmp_path / "audit.log"
    log.write_bytes(event("list", "pods") + b"\n")
    assert rights_audit.main([str(log), "--account", "op=operator"]) == 0
    assert "granted and not used: watch pods" in capsys.readouterr().out
    assert rights_audit.main([str(log), "--account", "op=operator", "--strict"]) == 1
    log.write_bytes(event("delete", "nodes", decision="forbid"))
    assert rights_audit.main([str(log), "--account", "op=operator"]) == 1


def test_the_policy_names_the_users_and_logs_nothing_of_others():
    policy = rights_audit.policy(["a", "b"])
    assert 'users: ["a","b"]' in policy
    assert policy.rstrip().endswith("- {level: None}")


def test_a_right_that_only_admission_asks_for_is_not_missed():
    grants = (Grant("g", "things/finalizers", ("update",)), Grant("g", "things", ("list",)))
    assert rights_audit.unused(rights_audit.Used(), grants) == [("g", "things", "list")]


def test_a_policy_for_no_user_by_name_writes_down_service_accounts_alone():
    rules = yaml.safe_load(rights_audit.policy([]))["rules"]
    assert [rule for rule in rules if rule["level"] != "None"] == [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]}
    ]
