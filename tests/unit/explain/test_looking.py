"""Looking from outside: what the API server lists, read past silent runtimes, in virtual time."""

import asyncio

import pytest
from simulated import CARD_24, H20, model, simulated

from aibrix_operator.api import names
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.resource import MODEL_CLAIMS, REPLICA_SETS
from aibrix_operator.explain import claim_report, looking
from aibrix_operator.explain.looking import CannotLook, Looker
from aibrix_operator.modelclaim.accounts import open_accounts
from aibrix_operator.sim.world import POOL


class ListedStore:
    """The reading calls of ``cluster.client.Cluster`` over a simulated store; answers a label selector by key."""

    def __init__(self, store, more=(), refused=()):
        self.store = store
        self.more = more  # claims that no controller could have been shown
        self.refused = refused  # plurals that RBAC does not allow

    async def list_all(self, resource, namespace=None, *, label_selector=""):
        if resource.plural in self.refused:
            raise errors.Denied(f"LIST {resource.plural}: HTTP 403: not yours", status=403)
        items = [
            obj
            for (plural, where, _), obj in self.store.objects.items()
            if plural == resource.plural and namespace in (None, where)
        ]
        items += self.more if resource == MODEL_CLAIMS else []
        return [o for o in items if not label_selector or label_selector in o["metadata"].get("labels", {})], "1"

    async def get(self, resource, namespace, name):
        try:
            return self.store.objects[resource.plural, namespace, name]
        except KeyError:
            raise errors.NotFound("gone", status=404) from None


def looker(cluster, **store):
    return Looker(ListedStore(cluster.store, **store), cluster.runtimes)


@simulated
async def test_a_look_sees_claims_pods_and_engines(cluster):
    cluster.add_pod("warm-0", H20)
    cluster.apply("a", "30Gi", "10Gi")
    await cluster.run(30)
    look = await looker(cluster).look("default")
    fleet = look.fleet("default")
    assert look.is_reached
    assert [c.name for c in fleet.claims] == ["a"]
    [engine] = fleet.pods["warm-0"].reading.snapshot.models
    assert engine.claim_ref.name == "a"
    assert look.fleet("elsewhere").claims == ()


@simulated
async def test_a_runtime_that_hangs_is_waited_for_only_so_long_and_the_others_are_read(cluster):
    cluster.add_pod("warm-0", CARD_24).before_snapshot = asyncio.Event().wait
    cluster.add_pod("warm-1", CARD_24)
    before_s = asyncio.get_running_loop().time()
    pods = (await looker(cluster).look(None)).fleets[0].pods
    assert asyncio.get_running_loop().time() - before_s == looking.READ_S
    assert pods["warm-0"].reading.error == "runtime of warm-0 did not answer within 5 s"
    assert pods["warm-1"].reading.snapshot is not None


@simulated
async def test_many_silent_runtimes_do_not_make_a_good_one_look_silent(cluster):
    for number in range(100):
        cluster.add_pod(f"silent-{number}", CARD_24).before_snapshot = asyncio.Event().wait
    cluster.add_pod("warm", CARD_24)
    fleet = (await looker(cluster).look("default")).fleet("default")
    assert fleet.pods["warm"].reading.snapshot is not None


@simulated
async def test_when_no_runtime_answers_it_is_this_machine_that_is_outside(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    cluster.runtimes.by_ip.clear()
    look = await looker(cluster).look("default")
    assert not look.is_reached
    assert look.fleet("default").claims[0].status.instances[0].pod == "warm-0"


@simulated
async def test_a_pod_that_lost_its_label_and_still_has_an_instance_is_looked_at(cluster):
    cluster.add_pod("warm-0", CARD_24)
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(30)
    cluster.label_pod("warm-0", {names.POOL_LABEL: None})
    assert list((await looker(cluster).look("default")).fleet("default").pods) == ["warm-0"]
    cluster.delete_pod("warm-0")
    assert list((await looker(cluster).look("default")).fleet("default").pods) == []


@simulated
async def test_a_claim_that_cannot_be_read_is_named_and_the_others_are_looked_at(cluster):
    cluster.apply("a", "6Gi", "1Gi")
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"engine": "tgi"}}
    look = await looker(cluster, more=[odd]).look("default")
    assert [c.name for c in look.fleet("default").claims] == ["a"]
    assert [text.partition(": ")[0] for text in look.unreadable] == ["default/odd"]
    with pytest.raises(CannotLook, match=r"^claim default/odd: spec\."):
        looking.report_on(look, "default", "odd")
    with pytest.raises(CannotLook, match=r"^there is no ModelClaim default/nope$"):
        looking.report_on(look, "default", "nope")
    assert looking.report_on(look, "default", "a").outcome is claim_report.Outcome.WAITS


@simulated
async def test_an_api_server_that_refuses_is_told_in_its_own_words(cluster):
    for plural in ("modelclaims", "pods"):
        with pytest.raises(CannotLook, match=f"LIST {plural}: HTTP 403: not yours"):
            await looker(cluster, refused=[plural]).look(None)


LENDS = '{"lifecycle": {"noWakeReserveWhileAsleep": true}}'


async def a_sleeper_that_lends(cluster):
    """One card with a claim that sleeps, and lends what it does not hold."""
    runtime = cluster.add_pod("warm-0", CARD_24)
    cluster.set_policy(LENDS)
    cluster.store.change(REPLICA_SETS, ("default", POOL), {"metadata": {"labels": {names.POOL_LABEL: POOL}}})
    cluster.apply("sleeper", "16Gi", "4Gi")
    await cluster.run(30)
    await cluster.stop_controller()
    runtime.sleep(model("sleeper"), asleep_bytes=1 << 30)


@simulated
async def test_a_sleeper_is_charged_by_the_policy_of_its_pool(cluster):
    await a_sleeper_that_lends(cluster)
    look = await looker(cluster).look("default")
    assert open_accounts(look.fleet("default"))["warm-0"].card.promised_bytes == 1 << 30
    assert look.policy_error == ""


@simulated
async def test_policies_that_may_not_be_read_are_a_warning(cluster):
    await a_sleeper_that_lends(cluster)
    look = await looker(cluster, refused=["deployments"]).look("default")
    assert open_accounts(look.fleet("default"))["warm-0"].card.promised_bytes == 20 << 30
    assert look.policy_error.endswith("LIST deployments: HTTP 403: not yours")
    assert looking.report_on(look, "default", "sleeper").warning == look.policy_error


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        pytest.param(
            {"KUBECONFIG": "/nowhere/config"}, "KUBECONFIG is /nowhere/config, and there is no such", id="named"
        ),
        pytest.param({}, "neither KUBECONFIG nor ~/.kube/config is there", id="nothing"),
    ],
)
async def test_without_a_cluster_it_says_where_it_looked(monkeypatch, tmp_path, environment, told):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CannotLook, match=told):
        async with looking.connect(None, None):
            raise AssertionError("there is no cluster")
