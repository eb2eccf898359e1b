"""Why a card cannot be judged: the first cause that is found is told."""

import pytest
from builders import make_claim, make_engine, make_fleet, make_instance, make_pod, make_snapshot

from aibrix_operator.api.modelclaim import InstancePhase
from aibrix_operator.modelclaim.accounts import open_accounts
from aibrix_operator.runtime_api.wire import EnginePhase

STRAY = make_engine("stray", claim=False)
LEAVER = make_engine("gone", phase=EnginePhase.STOPPING)
UNDECLARED = make_claim("a", make_instance(), seat=None)

OLD = "its runtime does not report what its cards can hold, as one older than the controller does not"
UNMEASURED = "its cards could not be measured"


@pytest.mark.parametrize(
    ("pod", "claims", "hole"),
    [
        pytest.param(make_pod(error="cut off"), [UNDECLARED], "its runtime did not answer", id="silent"),
        pytest.param(
            make_pod(error="cut off", gpus=0), [], "its runtime did not answer", id="silent, whatever it requests"
        ),
        pytest.param(make_pod("warm-0", make_snapshot(usable=(-1,), total=(9,))), [], UNMEASURED, id="not measured"),
        pytest.param(make_pod("warm-0", make_snapshot(usable=()), gpus=1), [], UNMEASURED, id="no card seen"),
        pytest.param(make_pod("warm-0", make_snapshot(), gpus=2), [], UNMEASURED, id="one of two seen"),
        pytest.param(make_pod("warm-0", make_snapshot(usable=(0,), total=(9,))), [UNDECLARED], OLD, id="old runtime"),
        pytest.param(
            make_pod("warm-0", make_snapshot(make_engine(), STRAY)),
            [UNDECLARED],
            "a runs there, and spec.perGPU is missing",
            id="undeclared before stray",
        ),
        pytest.param(
            make_pod("warm-0", make_snapshot(STRAY)),
            [],
            "the engine serving stray there answers to no claim",
            id="stray",
        ),
        pytest.param(
            make_pod("warm-0", make_snapshot(LEAVER, STRAY)),
            [],
            "the engine that served gone there is still exiting",
            id="the first stranger is told",
        ),
        pytest.param(
            make_pod("warm-0", make_snapshot(make_engine("dead", phase=EnginePhase.FAILED))), [], "", id="dead stranger"
        ),
        pytest.param(make_pod("warm-0"), [UNDECLARED], "", id="not read yet is no reason"),
        pytest.param(make_pod("warm-0", make_snapshot()), [], "", id="none"),
    ],
)
def test_the_first_cause_is_told(pod, claims, hole):
    account = open_accounts(make_fleet(pod, *claims))["warm-0"]
    assert account.hole == hole
    assert (account.card is None) == bool(hole or pod.reading.is_pending)


def test_a_recorded_limit_makes_a_pod_one_with_cards():
    claim = make_claim("a", make_instance(limit=200))
    account = open_accounts(make_fleet(make_pod("warm-0", make_snapshot(usable=()), gpus=0), claim))["warm-0"]
    assert (account.has_cards, account.hole) == (True, UNMEASURED)


def test_an_engine_that_carries_a_uid_is_matched_by_nothing_else():
    claim = make_claim("a", make_instance(), uid="another-uid")
    account = open_accounts(make_fleet(make_pod("warm-0", make_snapshot(make_engine())), claim))["warm-0"]
    assert account.sittings[0].engine is None
    assert account.hole == "the engine serving a there answers to no claim"


def test_an_engine_without_a_uid_is_matched_by_its_model():
    claim = make_claim("a", make_instance())
    account = open_accounts(make_fleet(make_pod("warm-0", make_snapshot(make_engine(claim=False))), claim))["warm-0"]
    assert account.sittings[0].engine is not None
    assert account.hole == ""


@pytest.mark.parametrize(
    ("engine", "is_charged"),
    [
        pytest.param(None, False, id="gone"),
        pytest.param(make_engine(phase=EnginePhase.FAILED), False, id="dead for good"),
        pytest.param(make_engine(phase=EnginePhase.FAILED, alive=True), True, id="failed, and its workers live"),
        pytest.param(make_engine(phase=EnginePhase.RESTARTING), True, id="dead, and being started again"),
        pytest.param(make_engine(), True, id="well, whatever its record says"),
    ],
)
def test_a_failed_instance_is_charged_until_its_engine_is_gone_for_good(engine, is_charged):
    pod = make_pod("warm-0", make_snapshot(*([] if engine is None else [engine])))
    account = open_accounts(make_fleet(pod, make_claim("a", make_instance(InstancePhase.FAILED))))["warm-0"]
    assert len(account.card.occupants) == is_charged
