"""Which engines are put to sleep: the runtime's word decides, and where it says nothing the engine's kind."""

import dataclasses

import pytest
from builders import make_claim, make_engine, make_fleet, make_instance, make_pod, make_snapshot, moment

from aibrix_operator.modelclaim import sleeping
from aibrix_operator.modelclaim.accounts import open_accounts
from aibrix_operator.modelclaim.draft import Draft


@pytest.mark.parametrize(
    ("kind", "word", "expected"),
    [
        pytest.param("vllm", None, True, id="upstream's-vllm"),
        pytest.param("sglang", None, False, id="upstream's-sglang"),
        pytest.param("vllm", True, True, id="our-vllm"),
        pytest.param("sglang", True, True, id="our-sglang"),
        pytest.param("vllm", False, False, id="started-without-sleep"),
        pytest.param("sglang", False, False, id="sglang-started-without-sleep"),
    ],
)
def test_the_runtimes_word_decides_who_can_sleep(kind, word, expected):
    claim = make_claim("a", make_instance())
    claim = dataclasses.replace(claim, spec=claim.spec.model_copy(update={"engine": kind}))
    pod = make_pod(snapshot=make_snapshot(make_engine("a", can_sleep=word)))
    fleet = make_fleet(claim, pod)
    accounts = open_accounts(fleet)
    draft = Draft(fleet, moment(), accounts, {}, {}, passes=1)
    found = [sitting.claim.name for sitting in sleeping.sleepable(accounts["warm-0"], draft)]
    assert found == (["a"] if expected else [])


def test_an_older_runtimes_answer_has_no_such_word():
    answer = make_engine().model_dump(mode="json", exclude={"can_sleep"})
    assert type(make_engine()).model_validate(answer).can_sleep is None
