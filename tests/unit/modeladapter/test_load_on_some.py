"""With ``replicas`` the adapter is on so many Pods, chosen by a policy, and never on more than are wanted."""

import pytest
from adapter_play import Play

from aibrix_operator.api import names
from aibrix_operator.api.adapter_policy import Policy
from aibrix_operator.modeladapter.snapshot import Verdict

THREE = ("b-1", "b-2", "b-3")


@pytest.mark.acceptance("MA-20")
def test_the_pod_with_the_fewest_models_is_chosen_and_the_annotation_comes_and_goes():
    play = Play(THREE, replicas=1)
    for name, count in (("b-1", 2), ("b-2", 1), ("b-3", 3)):
        play.engines[name].models = {f"m{i}": False for i in range(count)}
    play.holds_calls = True
    play.start()
    assert play.adapter.annotations[names.SCHEDULED_PODS_ANNOTATION] == "b-2"
    assert (play.phase, play.condition("Scheduled")) == ("Scheduled", ("True", "Scheduled"))
    assert "has selected 1 pods for scheduling: [b-2]" in play.message("Scheduled")
    play.answer()
    play.settle()
    assert (play.phase, play.status.instances, play.holding()) == ("Running", ("b-2",), {"b-2"})
    assert names.SCHEDULED_PODS_ANNOTATION not in play.adapter.annotations
    assert sum(engine.loads for engine in play.engines.values()) == 1
    assert (play.status.desired_replicas, play.status.candidates) == (1, 3)


@pytest.mark.acceptance("MA-21")
@pytest.mark.acceptance("MA-25")
def test_a_pod_that_is_ready_for_a_moment_only_is_waited_for():
    play = Play((), replicas=1)
    play.add_pod("b-1", ready_for_s=2)
    play.start()
    assert (play.phase, play.condition("Ready")) == ("Pending", ("False", "NoReadyPods"))
    assert play.condition("Scheduled") == ("False", "NoReadyPods")
    assert 0 < play.look_after_s <= 3
    play.later(1)
    assert play.condition("Ready") == ("False", "NoReadyPods")
    play.later(3)
    assert play.phase == "Running"


@pytest.mark.acceptance("MA-22")
def test_a_chosen_pod_that_goes_is_followed_by_another():
    play = Play(("b-1", "b-2"), replicas=1).start()
    assert play.status.instances == ("b-1",)
    play.remove_pod("b-1")
    play.now_s += 1
    play.turn()
    assert (play.condition("Ready"), play.condition("Scheduled")) in (
        (("False", "AdapterMigrating"), ("False", "Rescheduling")),
        (("True", "ModelAdapterAvailable"), ("True", "Scheduled")),  # the annotation is written first
    )
    play.turn()
    play.settle()
    assert (play.phase, play.status.instances) == ("Running", ("b-2",))
    assert play.events().count("Loaded") == 2


@pytest.mark.acceptance("MA-22")
def test_migration_is_told_while_nobody_is_chosen_yet():
    play = Play(("b-1",), replicas=1).start()
    play.remove_pod("b-1")
    play.add_pod("b-2", ready_for_s=1)
    play.later(1)
    assert (play.condition("Ready"), play.condition("Scheduled")) == (
        ("False", "AdapterMigrating"),
        ("False", "Rescheduling"),
    )
    play.later(5)
    assert (play.phase, play.condition("Scheduled")) == ("Running", ("True", "Rescheduled"))


@pytest.mark.acceptance("MA-23")
def test_another_pod_takes_it_when_the_chosen_one_refuses():
    play = Play(("b-1", "b-2"), replicas=1)
    play.engines["b-1"].refuses = "boom"
    play.start()
    assert (play.phase, play.status.instances) == ("Running", ("b-2",))
    assert play.engines["b-1"].loads == 1


@pytest.mark.acceptance("MA-24")
def test_from_all_to_one_the_oldest_stays_and_the_others_unload():
    play = Play(THREE).start()
    play.change_spec(replicas=1)
    phases = []
    for _ in range(8):
        play.turn()
        phases.append(play.phase)
    play.listen()
    play.settle()
    assert "Scaled" in phases
    assert (play.phase, play.status.instances, play.holding()) == ("Running", ("b-1",), {"b-1"})
    assert [engine.unloads for engine in play.engines.values()] == [0, 1, 1]
    assert play.slices[8000] == {"10.0.0.1"}


@pytest.mark.acceptance("MA-24")
def test_from_one_to_all_the_rest_load():
    play = Play(THREE, replicas=1).start()
    play.change_spec(replicas=None)
    play.later(1)
    assert (set(play.status.instances), play.holding()) == (set(THREE), set(THREE))


@pytest.mark.acceptance("MA-01")
def test_two_of_three_have_it():
    play = Play(THREE, replicas=2).start()
    assert (play.status.instances, play.status.desired_replicas, len(play.holding())) == (("b-1", "b-2"), 2, 2)
    play.change_spec(replicas=3)
    play.later(1)
    assert len(play.holding()) == 3
    play.change_spec(replicas=2)
    play.later(1)
    assert (play.status.instances, play.holding()) == (("b-1", "b-2"), {"b-1", "b-2"})


def test_more_replicas_than_pods_run_on_those_there_are():
    play = Play(("b-1",), replicas=3).start()
    assert (play.phase, play.status.ready_replicas, play.status.desired_replicas) == ("Running", 1, 3)


def test_a_load_without_an_answer_counts_until_the_engine_tells():
    play = Play(("b-1", "b-2"), replicas=1)
    play.engines["b-1"].load_verdicts = [(Verdict.UNKNOWN, "no answer within 30 s")]
    play.settle()
    play.listen()
    for _ in range(20):
        play.turn()
    assert play.engines["b-2"].loads == 0  # the first may have it
    play.listen()
    play.settle()
    assert play.holding() == {"b-2"}  # it had not


def test_nobody_is_chosen_before_every_engine_was_asked():
    play = Play(("b-1", "b-2"), replicas=1)
    play.settle()
    play.listen()
    del play.listings["b-2"]
    play.settle()
    assert names.SCHEDULED_PODS_ANNOTATION not in play.adapter.annotations
    play.listen()
    play.settle()
    assert play.phase == "Running"


def test_a_silent_engine_is_not_chosen():
    play = Play(("b-1", "b-2"), replicas=1)
    play.engines["b-1"].is_silent = "connection refused"
    play.start()
    assert play.status.instances == ("b-2",)


def test_packing_fills_the_fullest_pod_that_has_room():
    play = Play(THREE, replicas=1, policy=Policy.BIN_PACK)
    for name, count in (("b-1", 10), ("b-2", 9), ("b-3", 3)):
        play.engines[name].models = {f"m{i}": False for i in range(count)}
    play.start()
    assert play.status.instances == ("b-2",)


def test_packing_without_room_says_so():
    play = Play(("b-1",), replicas=1, policy=Policy.BIN_PACK)
    play.engines["b-1"].models = {f"m{i}": False for i in range(10)}
    play.start()
    assert (play.phase, play.condition("Ready")) == ("Pending", ("False", "InsufficientReadyPods"))
    assert "with room" in play.message("Scheduled")


def test_random_is_the_same_choice_again():
    first, second = (Play(THREE, replicas=1, policy=Policy.RANDOM).start().status.instances for _ in range(2))
    assert first == second


def test_adapters_on_their_way_count_as_models():
    play = Play(("b-1", "b-2"), replicas=1)
    play.change_pod("b-1", other_adapters=4)
    play.start()
    assert play.status.instances == ("b-2",)


def test_an_adapter_on_its_way_counts_beside_the_base_model():
    play = Play(("b-1", "b-2"), replicas=1)
    for engine in play.engines.values():
        engine.models["base"] = True
    play.change_pod("b-1", other_adapters=1)
    play.start()
    assert play.status.instances == ("b-2",)


def test_one_that_another_hand_loaded_is_taken_over():
    play = Play(THREE, replicas=1)
    play.engines["b-3"].models["sql"] = False
    play.start()
    assert (play.status.instances, sum(engine.loads for engine in play.engines.values())) == (("b-3",), 0)
