"""Without ``replicas`` every ready Pod that the selector takes has the adapter."""

import pytest
from adapter_play import Play

from aibrix_operator.api import names
from aibrix_operator.modeladapter.memory import NOTICE_S
from aibrix_operator.modeladapter.snapshot import Verdict

READY, AVAILABLE = "Ready", ("True", "ModelAdapterAvailable")


@pytest.mark.acceptance("MA-02")
def test_both_pods_load_it_once_and_the_status_tells():
    play = Play().start()
    assert [engine.loads for engine in play.engines.values()] == [1, 1]
    status = play.status
    assert (status.candidates, status.desired_replicas, status.ready_replicas) == (2, 2, 2)
    assert (play.phase, status.instances) == ("Running", ("b-1", "b-2"))
    assert play.has_service
    assert play.slices == {8000: {"10.0.0.1", "10.0.0.2"}}
    assert [play.condition(each) for each in (READY, "Scheduled", "Bound", "ResourceCreated")] == [
        AVAILABLE,
        ("True", "Scheduled"),
        ("True", "Bound"),
        ("True", "ResourcesCreated"),
    ]
    assert play.condition("Initialized") == ("Unknown", "ModelAdapterPending")


def test_five_writes_bring_it_there():
    play = Play().start()
    assert play.writes == ["AddFinalizer", "Publish", "CreateService", "WriteSlice", "Publish"]


@pytest.mark.acceptance("MA-03")
def test_without_pods_nothing_is_made_and_one_that_turns_ready_is_enough():
    play = Play(())
    play.start()
    assert (play.phase, play.condition(READY), play.has_service) == ("Pending", ("False", "NoReadyPods"), False)
    play.add_pod("b-1", ready_for_s=0)
    play.later(1)
    assert (play.phase, play.status.instances) == ("Running", ("b-1",))


@pytest.mark.acceptance("MA-04")
def test_a_third_pod_joins_and_an_unready_one_leaves_and_comes_back_without_a_load():
    play = Play().start()
    play.add_pod("b-3")
    play.later(10)
    assert play.status.instances == ("b-1", "b-2", "b-3")
    ready_since = play.pods["b-2"].ready_since
    play.change_pod("b-2", ready_since=None)
    play.later(1)
    assert (play.status.instances, play.slices[8000]) == (("b-1", "b-3"), {"10.0.0.1", "10.0.0.3"})
    assert play.engines["b-2"].unloads == 0
    play.change_pod("b-2", ready_since=ready_since)
    play.later(1)
    assert set(play.status.instances) == {"b-1", "b-2", "b-3"}
    assert play.engines["b-2"].loads == 1


@pytest.mark.acceptance("MA-05")
def test_one_that_fails_is_retried_later_and_later_and_given_up():
    play = Play()
    play.adapter.annotations["mine"] = "stays"
    play.engines["b-2"].refuses = "failed to load LoRA adapter (status 500): boom"
    play.start()
    assert (play.phase, play.status.instances, play.slices) == ("Running", ("b-1",), {8000: {"10.0.0.1"}})
    assert play.retries()["retry-count.b-2"] == "1"
    tries = []
    for second in range(400):
        before = play.engines["b-2"].loads
        play.later(1)
        if play.engines["b-2"].loads > before:
            tries.append(second)
    waits = [later - earlier for earlier, later in zip([0, *tries], tries, strict=False)]
    assert [round(wait, -1) for wait in waits] == [10, 20, 40, 80]
    assert (play.engines["b-2"].loads, play.retries()["retry-count.b-2"]) == (5, "5")
    assert play.events().count("GivenUp") == 1
    assert play.adapter.annotations["mine"] == "stays"


@pytest.mark.acceptance("MA-05")
def test_success_clears_what_was_noted():
    play = Play()
    play.engines["b-2"].load_verdicts = [(Verdict.REFUSED, "boom")]
    play.start()
    assert play.retries()
    play.later(11)
    assert (play.status.instances, play.retries()) == (("b-1", "b-2"), {})


@pytest.mark.acceptance("MA-06")
def test_all_fail_is_failed_with_each_pod_named_until_one_heals():
    play = Play()
    for engine in play.engines.values():
        engine.refuses = "boom"
    play.start()
    assert (play.phase, play.condition(READY)) == ("Failed", ("False", "ModelAdapterLoadingError"))
    message = play.message(READY)
    assert message == "Loading failed on all pods: pod b-1: boom; pod b-2: boom"
    for _ in range(30):
        play.later(1)
        assert (play.phase, play.message(READY)) == ("Failed", message)
    play.engines["b-1"].refuses = ""
    play.later(40)
    assert (play.phase, play.condition(READY)) == ("Running", AVAILABLE)


def test_failed_stays_while_tries_are_under_way():
    play = Play(("b-1",))
    play.engines["b-1"].refuses = "boom"
    play.start()
    play.holds_calls = True
    before = play.status
    play.later(11)
    assert (len(play.under_way), play.status) == (1, before)


@pytest.mark.acceptance("MA-07")
def test_an_engine_that_has_it_is_told_nothing():
    play = Play(("b-1",))
    play.engines["b-1"].models["sql"] = False
    play.start()
    assert (play.phase, play.engines["b-1"].loads) == ("Running", 0)


def test_a_base_model_of_that_name_is_no_adapter():
    play = Play(("b-1",))
    play.engines["b-1"].models["sql"] = True
    play.start()
    assert (play.phase, play.engines["b-1"].loads) == ("Failed", 0)
    assert "base model of this name" in play.message(READY)


@pytest.mark.acceptance("MA-08")
def test_an_engine_that_restarts_gets_it_again_and_the_status_stays():
    play = Play().start()
    before = play.status
    play.engines["b-1"].models.clear()
    play.later(10)
    assert (play.holding(), play.status, play.events().count("Lost")) == ({"b-1", "b-2"}, before, 1)


@pytest.mark.acceptance("MA-09")
def test_a_pod_whose_engine_does_not_answer_is_not_counted_early():
    play = Play(("b-1",))
    play.engines["b-1"].is_silent = "connection refused"
    play.start()
    assert (play.phase, play.status.ready_replicas, play.engines["b-1"].loads) == ("Failed", 0, 0)
    assert "connection refused" in play.message(READY)
    for _ in range(100):
        play.later(10)
    assert play.retries() == {}  # an engine that boots for long is not given up
    play.engines["b-1"].is_silent = ""
    play.later(10)
    assert play.phase == "Running"


@pytest.mark.acceptance("MA-12")
def test_all_pods_gone_is_pending_and_not_bound():
    play = Play().start()
    play.remove_pod("b-1")
    play.remove_pod("b-2")
    play.later(1)
    assert (play.phase, play.status.instances, play.slices) == ("Pending", (), {8000: frozenset()})
    assert (play.condition("Bound"), play.condition(READY)) == (("False", "NotBound"), ("False", "NoReadyPods"))
    assert play.status.loaded == ()


@pytest.mark.acceptance("MA-13")
def test_an_instance_that_cannot_be_loaded_again_is_dropped_and_its_successor_is_not():
    play = Play().start()
    play.engines["b-1"].models.clear()
    play.engines["b-1"].refuses = "CUDA out of memory"
    play.later(10)
    assert (play.status.instances, play.slices[8000]) == (("b-2",), {"10.0.0.2"})
    for _ in range(60):
        play.later(10)
    assert play.engines["b-1"].loads == 1 + 5
    play.remove_pod("b-1")
    play.add_pod("b-1", ready_for_s=0)
    play.later(1)
    assert (set(play.status.instances), play.retries()) == ({"b-1", "b-2"}, {})


def test_the_engines_own_words_are_in_the_condition_when_the_last_instance_is_lost():
    play = Play(("b-1",)).start()
    play.engines["b-1"].models.clear()
    play.engines["b-1"].refuses = "CUDA out of memory"
    play.later(10)
    assert (play.phase, play.status.instances, play.slices[8000]) == ("Failed", (), frozenset())
    assert "pod b-1: CUDA out of memory" in play.message(READY)


def test_a_load_without_an_answer_is_found_by_the_next_list():
    play = Play(("b-1",))
    play.engines["b-1"].load_verdicts = [(Verdict.UNKNOWN, "no answer within 30 s")]
    play.start()
    play.engines["b-1"].models["sql"] = False  # it was still at it
    play.later(2)
    assert (play.phase, play.engines["b-1"].loads, play.retries()) == ("Running", 1, {})


@pytest.mark.acceptance("MA-50")
def test_a_steady_adapter_plans_nothing():
    play = Play().start()
    written = len(play.writes)
    for _ in range(6):
        play.later(10)
    assert (len(play.writes), play.look_after_s) == (written, None)


@pytest.mark.acceptance("MA-52")
def test_a_restarted_operator_loads_and_writes_nothing():
    play = Play().start()
    written = len(play.writes)
    play.restart_operator()
    play.settle()
    play.listen()
    play.settle()
    assert len(play.writes) == written
    assert [engine.loads for engine in play.engines.values()] == [1, 1]


def test_a_restarted_operator_keeps_why_it_failed():
    play = Play(("b-1",))
    play.engines["b-1"].refuses = "boom"
    play.start()
    before = play.status
    play.restart_operator()
    play.start()
    assert play.status == before


@pytest.mark.acceptance("MA-53")
def test_ready_waits_for_the_slice():
    play = Play(("b-1",))
    seen = []
    for _ in range(20):
        play.turn()
        seen.append((play.condition(READY) == AVAILABLE, 8000 in play.slices))
        play.listen()
    assert (True, False) not in seen
    assert seen[-1] == (True, True)


@pytest.mark.acceptance("MA-54")
def test_a_long_pod_name_is_noted_under_a_key_that_the_api_server_takes():
    name = "p" * 60
    play = Play((name,))
    play.engines[name].refuses = "boom"
    play.start()
    assert len(play.retries()) == 2
    assert all(len(key) <= 63 for key in play.retries())
    assert play.engines[name].loads == 1
    play.later(5)
    assert play.engines[name].loads == 1  # the note is found again


def test_notes_about_pods_that_are_gone_are_removed():
    play = Play().start()
    play.adapter.annotations[names.RETRY_COUNT_PREFIX + "gone"] = "3"
    play.adapter.annotations[names.LAST_RETRY_PREFIX + "gone"] = "2026-01-01T00:00:00Z"
    play.later(1)
    assert play.retries() == {}


def test_a_narrowed_selector_lets_the_engine_go_after_the_route():
    play = Play().start()
    play.change_pod("b-2", is_selected=False)
    play.holds_calls = True
    play.later(1)
    assert (play.status.instances, len(play.under_way)) == (("b-1",), 1)
    play.answer()
    play.settle()
    assert (play.holding(), [each.pod for each in play.status.loaded]) == ({"b-1"}, ["b-1"])


def test_an_unload_that_fails_is_told_and_tried_again_when_the_next_list_still_has_it():
    play = Play().start()
    play.engines["b-2"].unload_verdict = Verdict.REFUSED
    play.change_pod("b-2", is_selected=False)
    play.later(1)
    assert (play.engines["b-2"].unloads, play.events().count("UnloadFailed")) == (1, 1)
    play.settle()
    assert play.engines["b-2"].unloads == 1
    play.engines["b-2"].unload_verdict = Verdict.DONE
    play.later(10)
    assert (play.holding(), [each.pod for each in play.status.loaded]) == ({"b-1"}, ["b-1"])


def test_an_edited_address_goes_from_pod_to_pod():
    play = Play(("b-1", "b-2", "b-3")).start()
    play.change_spec(artifact_url="s3://bucket/new")
    least = 3
    for _ in range(30):
        play.turn()
        play.now_s += NOTICE_S / 2
        play.listen()
        least = min(least, len(play.status.instances))
    assert least == 2
    assert set(play.status.instances) == {"b-1", "b-2", "b-3"}
    assert {each.artifact_url for each in play.status.loaded} == {"s3://bucket/new"}
    assert [engine.loads for engine in play.engines.values()] == [2, 2, 2]


def test_an_edited_address_that_does_not_load_stops_at_the_first_pod():
    play = Play(("b-1", "b-2", "b-3")).start()
    for engine in play.engines.values():
        engine.refuses = "nothing there"
    play.change_spec(artifact_url="s3://bucket/wrong")
    for _ in range(60):
        play.later(10)
    assert (play.status.instances, play.phase) == (("b-2", "b-3"), "Running")


def test_an_edit_begins_to_count_anew():
    play = Play(("b-1",))
    play.engines["b-1"].refuses = "nothing there"
    play.start()
    for _ in range(60):
        play.later(10)
    assert play.engines["b-1"].loads == 5
    play.engines["b-1"].refuses = ""
    play.change_spec(artifact_url="s3://bucket/right")
    play.later(1)
    assert (play.phase, play.retries()) == ("Running", {})
