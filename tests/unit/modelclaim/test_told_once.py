"""An engine that is up at once is told of once, and one that is not, as soon as there is something to tell."""

import dataclasses

import pytest
from builders import make_claim, make_draft, make_engine, make_instance, make_pod, make_snapshot
from simulated import CARD_24, simulated

from aibrix_operator.api.modelclaim import ClaimPhase, InstancePhase
from aibrix_operator.cluster.resource import MODEL_CLAIMS, PODS
from aibrix_operator.modelclaim import starting
from aibrix_operator.modelclaim.draft import BOOT_PACE_S
from aibrix_operator.modelclaim.health import Verdict
from aibrix_operator.modelclaim.memory import ClaimMemory, LimitWrite

POD = "uid-of-warm-0"
NEW = make_instance(InstancePhase.ACTIVATING, port=0)
UP = make_snapshot(make_engine("a", limit=1000))
WRITTEN = LimitWrite(POD, 200, 1000, 10.0, 1)
STARTED = ClaimMemory(started_on=frozenset({POD}))


def is_held_back(memory, *, instance=NEW, after=None, snapshot=UP, now_s=10.0):
    draft = make_draft(make_claim("a", instance), make_pod("warm-0", snapshot), claims={"a": memory}, now_s=now_s)
    (account,) = draft.accounts.values()
    (sitting,) = account.sittings
    return starting.is_about_to_serve(account, sitting, Verdict(after or instance), draft)


@pytest.mark.parametrize(
    ("memory", "options", "expected"),
    [
        pytest.param(STARTED, {"snapshot": None}, True, id="started, and not read since"),
        pytest.param(ClaimMemory(), {"snapshot": None}, False, id="not started"),
        pytest.param(ClaimMemory(limit_write=WRITTEN), {}, True, id="its limit was just written"),
        pytest.param(ClaimMemory(limit_write=WRITTEN), {"now_s": 10.0 + BOOT_PACE_S}, False, id="a while ago"),
        pytest.param(ClaimMemory(), {}, False, id="it boots"),
        pytest.param(
            ClaimMemory(limit_write=dataclasses.replace(WRITTEN, error="no segment")), {}, False, id="the write failed"
        ),
        pytest.param(
            ClaimMemory(limit_write=dataclasses.replace(WRITTEN, pod_uid="other")), {}, False, id="on another Pod"
        ),
        pytest.param(
            ClaimMemory(limit_write=WRITTEN, refused_on={POD: "no"}), {}, False, id="its record is taken back"
        ),
        pytest.param(
            ClaimMemory(limit_write=WRITTEN),
            {"instance": make_instance(InstancePhase.ACTIVATING)},
            False,
            id="it was told of as it booted",
        ),
        pytest.param(ClaimMemory(limit_write=WRITTEN), {"after": make_instance()}, False, id="it serves"),
    ],
)
def test_what_is_held_back_until_the_engine_serves(memory, options, expected):
    assert is_held_back(memory, **options) is expected


@simulated
async def test_an_engine_that_is_up_at_once_costs_two_statuses_and_one_route(cluster):
    cluster.add_pod("warm-0", CARD_24, boot_s=0.0)
    writes, judge = [], cluster.store.changed

    def note(verb, resource, old, new):
        judge(verb, resource, old, new)
        if resource == MODEL_CLAIMS and old is not None and old.get("status") != new.get("status"):
            writes.append("status")
        if resource == PODS and old is not None:
            writes.append("route")

    cluster.store.changed = note
    cluster.apply("a", "6Gi", "1Gi")
    await cluster.run(5)

    assert cluster.status("a").phase == ClaimPhase.ACTIVE
    assert sorted(writes) == ["route", "status", "status"]
