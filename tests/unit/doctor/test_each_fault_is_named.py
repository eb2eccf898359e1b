"""One fact that is wrong gives the finding that is named for it, with what to do."""

from dataclasses import replace

import pytest

from aibrix_operator.doctor import checks
from aibrix_operator.doctor.checks import Level
from aibrix_operator.doctor.facts import (
    ComponentPod,
    Definition,
    Facts,
    Lease,
    Permission,
    Pool,
    PoolPod,
    Runtime,
    Standing,
)

OPERATOR = ComponentPod("operator", "sys", "op-1", True)
GATEWAY = ComponentPod("gateway", "sys", "gw-1", True)
WARM = PoolPod("pool", "p-1", "demo", True, True, 1, Runtime.READ, skew_s=0.1)
HEALTHY = Facts(
    definitions=(Definition("modelclaims", Standing.GOOD),),
    permissions=(Permission("operator", "list", "pods", "", True),),
    pods=(OPERATOR, GATEWAY),
    lease=Lease("sys", "aibrix-operator", "op-1", True, 0.2),
    pool_pods=(WARM,),
    pools=(Pool("pool", "demo-pool", ""),),
)


def warm(**changes):
    """A second warm Pod beside the good one."""
    return {"pool_pods": (WARM, replace(WARM, name="p-2", **changes))}


ROWS = {
    "a definition is missing": (
        {"definitions": (Definition("modelclaims", Standing.MISSING),)},
        Level.ERROR,
        "the definition modelclaims is missing",
        "helm upgrade",
    ),
    "a definition is old": (
        {"definitions": (Definition("modelclaims", Standing.OTHER, "spec.versions[0] differs"),)},
        Level.ERROR,
        "not this version's: spec.versions[0] differs",
        "definitions come before the operator",
    ),
    "a definition is not served": (
        {"definitions": (Definition("modelclaims", Standing.NOT_SERVED, "names conflict"),)},
        Level.ERROR,
        "is not served: names conflict",
        "kubectl describe crd modelclaims",
    ),
    "a right is missing": (
        {"permissions": (Permission("operator", "patch", "pods", "", False),)},
        Level.ERROR,
        "the operator may not patch pods",
        "chart's roles",
    ),
    "a right in a namespace is missing": (
        {"permissions": (Permission("operator", "create", "leases", "sys", False),)},
        Level.ERROR,
        "the operator may not create leases in sys",
        "chart's roles",
    ),
    "rights cannot be asked about": (
        {"permissions": (Permission("gateway", "list", "pods", "", None),)},
        Level.NOTE,
        "what the gateway may do cannot be asked from here",
        "subjectaccessreviews",
    ),
    "no operator": ({"pods": (GATEWAY,)}, Level.ERROR, "there is no operator", "install the chart"),
    "no gateway": ({"pods": (OPERATOR,)}, Level.WARNING, "there is no gateway", "install the chart"),
    "no operator is ready": (
        {"pods": (replace(OPERATOR, is_ready=False, reason="ImagePullBackOff"), GATEWAY)},
        Level.ERROR,
        "1 of 1 operator Pods are not ready: ImagePullBackOff",
        "kubectl -n sys describe pod op-1",
    ),
    "one gateway of two is not ready": (
        {"pods": (OPERATOR, GATEWAY, replace(GATEWAY, name="gw-2", is_ready=False))},
        Level.WARNING,
        "1 of 2 gateway Pods are not ready: its readiness probe says no",
        "describe pod gw-2",
    ),
    "nobody leads": (
        {"lease": Lease("sys", "aibrix-operator", "", False, None)},
        Level.ERROR,
        "nobody leads",
        "is an operator ready?",
    ),
    "the Lease is stale": (
        {"lease": Lease("sys", "aibrix-operator", "op-1", False, None)},
        Level.ERROR,
        "the Lease sys/aibrix-operator is stale: op-1 holds it",
        "another replica takes over",
    ),
    "the leader's clock is wrong": (
        {"lease": Lease("sys", "aibrix-operator", "op-1", True, -61.0)},
        Level.WARNING,
        "the leading operator's clock is 61 s behind the API server's",
        "NTP",
    ),
    "no warm pool": ({"pool_pods": ()}, Level.ERROR, "there is no warm pool", "examples/warm-pool.yaml"),
    "a policy is ignored": (
        {"pools": (Pool("pool", "demo-pool", "it is no JSON"),)},
        Level.ERROR,
        "the policy of pool pool/demo-pool is ignored: it is no JSON",
        "mend the annotation",
    ),
    "a warm Pod takes no claims": (
        warm(is_enabled=False),
        Level.WARNING,
        "warm Pods that take no claims: pool/p-2",
        "enabled=true",
    ),
    "a warm Pod has no GPU": (warm(gpus=0), Level.WARNING, "that ask for no GPU: pool/p-2", "nvidia.com/gpu"),
    "a warm Pod has no sidecar": (
        warm(has_sidecar=False, runtime=Runtime.SILENT),
        Level.WARNING,
        "without a sidecar: pool/p-2",
        "aibrix-operator runtime",
    ),
    "a sidecar is silent": (
        warm(runtime=Runtime.SILENT),
        Level.ERROR,
        "whose sidecar does not answer: pool/p-2",
        "leaves it alone",
    ),
    "no sidecar can be reached": (
        {"pool_pods": (replace(WARM, runtime=Runtime.SILENT),)},
        Level.NOTE,
        "none of 1 sidecars can be reached from here",
        "operator's Pod",
    ),
    "a sidecar wants another token": (
        warm(runtime=Runtime.REFUSED),
        Level.ERROR,
        "whose sidecar asks for another token: pool/p-2",
        "one Secret",
    ),
    "a sidecar speaks something else": (
        warm(runtime=Runtime.UNREADABLE, message="no JSON"),
        Level.ERROR,
        "the sidecar of pool/p-2 cannot be understood: no JSON",
        "one version",
    ),
    "a sidecar asks nobody": (
        warm(is_open=True),
        Level.WARNING,
        "whose sidecar asks for no token: pool/p-2",
        "AIBRIX_RUNTIME_TOKEN_FILE",
    ),
    "a sidecar measures nothing": (warm(has_cards=False), Level.ERROR, "cannot measure its cards: pool/p-2", "NVML"),
    "a node's clock is wrong": (
        warm(skew_s=30.0),
        Level.WARNING,
        "the clock of pool/p-2 is 30 s ahead of ours",
        "NTP",
    ),
    "something could not be looked at": (
        {"unseen": ("the Lease could not be looked at: 403",)},
        Level.NOTE,
        "the Lease could not be looked at",
        "somebody who may",
    ),
}


def test_of_a_healthy_cluster_nothing_is_said():
    assert checks.examine(HEALTHY) == []


@pytest.mark.parametrize(("changes", "level", "text", "remedy"), ROWS.values(), ids=ROWS)
def test_what_is_wrong_is_named_with_what_to_do(changes, level, text, remedy):
    (finding,) = checks.examine(replace(HEALTHY, **changes))
    assert finding.level is level
    assert text in finding.text
    assert remedy in finding.remedy


def test_pods_that_could_not_be_looked_at_are_no_missing_pool():
    (finding,) = checks.examine(replace(HEALTHY, pool_pods=(), unseen=("the warm Pods could not be looked at: 403",)))
    assert finding.level is Level.NOTE


def test_a_pod_that_does_not_run_yet_is_left_to_its_deployment():
    assert checks.examine(replace(HEALTHY, **warm(runtime=Runtime.NOT_ASKED))) == []


def test_the_worst_comes_first_and_long_lists_are_cut():
    many = tuple(replace(WARM, name=f"p-{n}", gpus=0) for n in range(8))
    found = checks.examine(replace(HEALTHY, pool_pods=many, pods=(GATEWAY,), unseen=("x",)))
    assert [each.level for each in found] == [Level.ERROR, Level.WARNING, Level.NOTE]
    assert found[1].text.endswith("pool/p-4 and 3 more")
