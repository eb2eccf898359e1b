"""What the next pass looks at: some Pods while that is enough, and everything as soon as it is not."""

from aibrix_operator.modelclaim.attention import Attention


def looked_at_once():
    attention = Attention()
    attention.take(0.0)
    return attention


def test_the_first_look_is_at_everything():
    assert Attention().take(0.0) is None


def test_marks_of_one_pass_are_looked_at_together_and_once():
    attention = looked_at_once()
    attention.mark({"warm-0"})
    attention.mark({"warm-1"})
    assert attention.take(1.0) == {"warm-0", "warm-1"}
    assert attention.take(2.0) == frozenset()


def test_one_mark_that_nobody_can_place_makes_it_everything():
    attention = looked_at_once()
    attention.mark({"warm-0"})
    attention.mark(None)
    assert attention.take(1.0) is None
    assert attention.take(2.0) == frozenset()


def test_an_alarm_is_looked_at_when_it_is_due_and_not_before():
    attention = looked_at_once()
    attention.mark_at(10.0, frozenset({"warm-0"}))
    assert attention.take(9.0) == frozenset()
    assert attention.next_s == 10.0
    assert attention.take(10.0) == {"warm-0"}
    assert attention.next_s is None


def test_the_earlier_of_two_alarms_for_the_same_stays():
    attention = looked_at_once()
    for due_s in (5.0, 3.0, 8.0):
        attention.mark_at(due_s, frozenset({"warm-0"}))
    assert attention.next_s == 3.0


def test_a_look_ends_the_alarms_that_it_plans_anew_and_no_other():
    attention = looked_at_once()
    for scope in (frozenset({"warm-0"}), frozenset({"warm-1"}), None):
        attention.mark_at(10.0, scope)
    attention.mark({"warm-0"})
    assert attention.take(1.0) == {"warm-0"}
    assert attention.take(10.0) is None

    attention.mark_at(20.0, frozenset({"warm-0"}))
    attention.mark(None)
    assert attention.take(11.0) is None
    assert attention.next_s is None
