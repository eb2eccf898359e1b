"""Nothing of a deleted adapter stays, and one name has one adapter."""

from dataclasses import replace

import pytest
from adapter_play import Play

from aibrix_operator.api import names
from aibrix_operator.modeladapter.memory import NOTICE_S
from aibrix_operator.modeladapter.snapshot import Refusal, Verdict
from aibrix_operator.modeladapter.steps import Unload

ROUTED = {names.MODEL_LABEL: "sql"}


@pytest.mark.acceptance("MA-40")
def test_each_instance_is_unloaded_once_and_then_it_is_gone():
    play = Play().start()
    play.delete()
    assert (play.is_gone, play.holding()) == (True, set())
    assert [engine.unloads for engine in play.engines.values()] == [1, 1]


def test_gateways_have_notice_before_an_engine_is_told():
    play = Play(("b-1",)).start()
    play.adapter = replace(play.adapter, is_deleting=True)
    assert (play.turn(), play.look_after_s) == ([], NOTICE_S)
    play.now_s += NOTICE_S / 2
    assert (play.turn(), play.engines["b-1"].unloads) == ([], 0)
    play.now_s += play.look_after_s
    assert [type(step) for step in play.turn()] == [Unload]


def test_gateways_have_notice_of_a_pod_that_is_let_go():
    play = Play().start()
    play.change_spec(replicas=1)
    while play.turn():
        pass
    assert (len(play.status.instances), play.holding()) == (1, {"b-1", "b-2"})
    assert 0 < play.look_after_s <= NOTICE_S
    play.settle()
    assert play.holding() == set(play.status.instances)


@pytest.mark.acceptance("MA-41")
@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.NOT_SENT, Verdict.UNKNOWN])
def test_an_engine_that_fails_keeps_nothing_alive(verdict):
    play = Play().start()
    play.engines["b-1"].unload_verdict = verdict
    play.delete()
    assert (play.is_gone, play.engines["b-1"].unloads) == (True, 1)


@pytest.mark.acceptance("MA-42")
def test_pods_that_are_gone_or_going_are_passed_over():
    play = Play().start()
    play.remove_pod("b-1")
    play.change_pod("b-2", is_terminating=True)
    play.delete()
    assert (play.is_gone, play.engines["b-2"].unloads) == (True, 0)


@pytest.mark.acceptance("MA-43")
def test_what_was_never_loaded_is_not_unloaded():
    play = Play(("b-1",))
    play.engines["b-1"].refuses = "boom"
    play.start()
    play.delete()
    assert (play.is_gone, play.engines["b-1"].unloads) == (True, 0)


def test_a_load_under_way_is_waited_for_and_undone():
    play = Play(("b-1",))
    play.holds_calls = True
    play.start()
    play.delete()
    assert not play.is_gone
    play.answer()
    play.holds_calls = False
    play.settle()
    assert (play.is_gone, play.holding()) == (True, set())


def test_a_load_without_an_answer_is_undone():
    play = Play(("b-1",))
    play.engines["b-1"].load_verdicts = [(Verdict.UNKNOWN, "no answer")]
    play.settle()
    play.listen()
    play.turn()
    play.turn()
    play.engines["b-1"].models["sql"] = False
    play.delete()
    assert (play.is_gone, play.holding()) == (True, set())


def test_a_base_model_of_that_name_is_not_unloaded():
    play = Play(("b-1",))
    play.engines["b-1"].models["sql"] = True
    play.start()
    play.delete()
    assert (play.is_gone, play.engines["b-1"].unloads) == (True, 0)


def test_an_adapter_without_our_finalizer_is_not_ours_to_end():
    play = Play()
    play.adapter = replace(play.adapter, is_deleting=True)
    assert play.turn() == []


def test_an_older_namesake_keeps_the_name():
    play = Play()
    play.name_holder = "team-a/sql"
    play.start()
    assert (play.phase, play.condition("Ready"), play.holding()) == ("Failed", ("False", "NameInUse"), set())
    assert "team-a/sql" in play.message("Ready")
    play.name_holder = ""
    play.later(1)
    assert play.phase == "Running"


def test_a_name_that_an_older_one_takes_back_is_let_go():
    play = Play().start()
    play.name_holder = "team-a/sql"
    play.later(1)
    assert (play.phase, play.status.instances, play.holding()) == ("Failed", (), set())


def test_a_spec_that_cannot_be_read_is_told():
    play = Play()
    play.adapter = replace(play.adapter, spec=None, spec_error="spec.artifactURL: Field required")
    play.start()
    assert (play.phase, play.condition("Ready")) == ("Failed", ("False", "InvalidSpec"))
    assert play.message("Ready") == "spec.artifactURL: Field required"


@pytest.mark.acceptance("MA-60")
def test_a_route_is_made_for_who_asks_and_removed_before_the_end():
    play = Play(labels=ROUTED).start()
    assert play.routes == ["sql-router"]
    play.delete()
    assert (play.routes, play.is_gone) == ([], True)


def test_a_route_that_cannot_be_made_is_tried_again_later():
    play = Play(labels=ROUTED)
    play.route_error = "denied"
    play.start()
    assert (play.phase, play.routes) == ("Running", [])
    play.route_error = ""
    play.later(5)
    assert play.routes == []
    play.later(6)
    assert play.routes == ["sql-router"]


def test_a_route_that_cannot_be_removed_keeps_the_finalizer():
    play = Play(labels=ROUTED).start()
    play.route_error = "no answer"
    play.delete()
    assert (play.is_gone, 0 < play.look_after_s <= 10) == (False, True)
    play.route_error = ""
    play.later(11)
    assert play.is_gone


@pytest.mark.parametrize(("is_service", "reason"), [(True, "ServiceCreateError"), (False, "EndpointSliceCreateError")])
def test_a_refused_service_or_slice_is_told_and_gateways_still_find_the_pods(is_service, reason):
    play = Play()
    play.settle()
    play.listen()
    play.refusal = Refusal(is_service, "may not be in the loopback range", again_at_s=play.now_s + 10)
    play.settle()
    assert (play.phase, play.condition("ResourceCreated")) == ("ResourceCreated", ("False", reason))
    assert (play.status.instances, play.condition("Ready")) == (("b-1", "b-2"), ("False", reason))
    assert 0 < play.look_after_s <= 10
    play.refusal = replace(play.refusal, again_at_s=0)
    play.turn()
    play.refusal = None
    play.settle()
    assert play.phase == "Running"
