"""``kubectl aibrix wake``: what it writes, and that it never writes twice; in virtual time, past the controller."""

import pytest
from simulated import CARD_24, simulated
from sleepers import one_asleep

from aibrix_operator.api import names
from aibrix_operator.api.modelclaim import ClaimPhase
from aibrix_operator.cluster import errors
from aibrix_operator.explain.looking import CannotLook
from aibrix_operator.plugin import waking
from aibrix_operator.sim.store import wall


class Calls:
    """The API server as users reach it, over a simulated store."""

    def __init__(self, store, conflicts=0, error=None):
        self.store = store
        self.conflicts = conflicts
        self.error = error
        self.patches = []

    async def get(self, resource, namespace, name):
        try:
            return self.store.objects[resource.plural, namespace, name]
        except KeyError:
            raise errors.NotFound("gone", status=404) from None

    async def patch_metadata(self, resource, namespace, name, metadata, resource_version):
        if self.error is not None:
            raise self.error
        if (
            self.conflicts
            or resource_version != (await self.get(resource, namespace, name))["metadata"]["resourceVersion"]
        ):
            self.conflicts -= 1
            raise errors.Conflict("changed", status=409)
        self.patches.append((name, metadata))
        self.store.change(resource, (namespace, name), {"metadata": metadata})


@simulated
async def test_a_sleeping_claim_is_asked_for_and_wakes(cluster):
    await one_asleep(cluster)
    calls = Calls(cluster.store)
    request = await waking.ask(calls, "default", "a", wall)
    [asked] = request.asked
    assert (asked.pod, asked.is_new) == ("warm-0", True)
    assert await waking.wait(calls, "default", "a", 60)
    assert cluster.status("a").phase == ClaimPhase.ACTIVE


@simulated
async def test_asking_again_changes_nothing(cluster):
    pod = await one_asleep(cluster)
    pod.wake_s = 30.0
    calls = Calls(cluster.store)
    first = await waking.ask(calls, "default", "a", wall)
    again = await waking.ask(calls, "default", "a", wall)
    assert not again.asked[0].is_new
    assert again.asked[0].since == first.asked[0].since
    assert len(calls.patches) == 1


@simulated
async def test_a_pod_that_changed_meanwhile_is_read_anew(cluster):
    await one_asleep(cluster)
    calls = Calls(cluster.store, conflicts=waking.TRIES - 1)
    request = await waking.ask(calls, "default", "a", wall)
    assert request.asked[0].is_new


@simulated
async def test_a_pod_that_changes_all_the_time_is_given_up_with_a_word(cluster):
    await one_asleep(cluster)
    calls = Calls(cluster.store, conflicts=waking.TRIES)
    with pytest.raises(CannotLook, match="pod default/warm-0 changed 5 times meanwhile"):
        await waking.ask(calls, "default", "a", wall)
    assert names.wake_annotation("a") not in cluster.annotations("warm-0")


@simulated
async def test_who_may_not_write_is_told_so(cluster):
    await one_asleep(cluster)
    calls = Calls(cluster.store, error=errors.Denied("PATCH pods: HTTP 403", status=403))
    with pytest.raises(CannotLook, match="pod default/warm-0 could not be asked: PATCH pods: HTTP 403"):
        await waking.ask(calls, "default", "a", wall)


@simulated
async def test_a_claim_that_is_awake_is_left_alone_and_one_without_a_card_has_nobody_to_wake(cluster):
    await one_asleep(cluster)
    cluster.apply("huge", "600Gi", "1Gi")
    await cluster.run(5)
    calls = Calls(cluster.store)
    awake = await waking.ask(calls, "default", "b", wall)
    assert (awake.has_engine, awake.asked) == (True, ())
    assert not (await waking.ask(calls, "default", "huge", wall)).has_engine
    assert calls.patches == []


@simulated
async def test_a_claim_that_does_not_wake_is_waited_for_as_long_as_told(cluster):
    pod = await one_asleep(cluster)
    pod.wake_s = 1000.0
    calls = Calls(cluster.store)
    await waking.ask(calls, "default", "a", wall)
    began = cluster.now_s()
    assert not await waking.wait(calls, "default", "a", 10)
    assert cluster.now_s() - began == pytest.approx(10, abs=1)


@simulated
async def test_no_claim_of_that_name_is_an_error(cluster):
    cluster.add_pod("warm-0", CARD_24)
    with pytest.raises(CannotLook, match="there is no ModelClaim default/nobody"):
        await waking.ask(Calls(cluster.store), "default", "nobody", wall)
