"""Who would have to go: the smallest sets, and nothing that would not help."""

import itertools

from explain_builders import On, claim_in, small_fleet
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.explain import judging, making_way
from aibrix_operator.ledger.placement import Placed


def suggest(fleet, name="waiting"):
    claim = claim_in(fleet, name)
    accounts = judging.judge(fleet, claim, claim.seat).accounts
    return making_way.suggest(fleet, claim, claim.seat, [accounts[pod] for pod in sorted(accounts)])


def sets(fleet):
    return [(s.pod, s.claims) for s in suggest(fleet)]


WAITING = On("waiting", 300, 100)


def test_one_claim_goes_before_two():
    fleet = small_fleet(
        WAITING,
        (1000, [On("a", 200, 120), On("b", 200, 120), On("c", 200, 120)]),
        (1000, [On("d", 700, 100), On("e", 100, 50)]),
    )
    assert sets(fleet) == [("pod-1", ("d",)), ("pod-0", ("a", "b")), ("pod-0", ("a", "c"))]


def test_idle_claims_go_before_busy_ones():
    fleet = small_fleet(WAITING, (1000, [On("a", 300, 100, requests=2), On("b", 300, 100)]))
    assert sets(fleet) == [("pod-0", ("b",)), ("pod-0", ("a",))]


def test_the_least_memory_goes_among_equals():
    fleet = small_fleet(WAITING, (1000, [On("a", 500, 100), On("b", 300, 100)]))
    assert sets(fleet) == [("pod-0", ("b",)), ("pod-0", ("a",))]


def test_kv_that_an_engine_holds_comes_free_with_it():
    fleet = small_fleet(WAITING, (1000, [On("a", 300, 100, mapped_bytes=500)]))
    [suggestion] = suggest(fleet)
    assert (suggestion.claims, suggestion.freed_bytes) == (("a",), 800)


def test_a_claim_that_leaves_already_costs_nobody_anything():
    fleet = small_fleet(WAITING, (1000, [On("a", 300, 100), On("b", 300, 100, is_leaving=True)]))
    [suggestion] = suggest(fleet)
    assert (suggestion.claims, suggestion.leaving) == ((), ("b",))


def test_a_card_that_is_too_small_asks_nobody_to_go():
    assert sets(small_fleet(WAITING, (399, [On("a", 100, 100)]))) == []


def test_a_namesake_has_to_go_even_where_there_is_room():
    waiting = On("waiting", 300, 100, model="one-name")
    fleet = small_fleet(waiting, (1000, [On("a", 100, 50, model="one-name"), On("b", 100, 50)]))
    assert sets(fleet) == [("pod-0", ("a",))]


def test_a_card_with_very_many_engines_is_answered_all_the_same():
    fleet = small_fleet(On("waiting", 600, 100), (1000, [On(f"c{n:02}", 20, 5) for n in range(40)]))
    best = suggest(fleet)[0]
    assert len(best.claims) == 28


occupants = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 80), st.integers(0, 3)), min_size=1, max_size=6
)


@given(occupants, st.integers(1, 150), st.integers(1, 50), st.integers(50, 400))
def test_the_smallest_sets_are_found_and_each_of_them_helps(figures, footprint, floor, usable):
    on_it = [On(f"c{n}", f, k, m, r) for n, (f, k, m, r) in enumerate(figures)]
    fleet = small_fleet(On("waiting", footprint, floor), (usable, on_it))
    claim = claim_in(fleet, "waiting")

    def helps(gone):
        after = judging.without_claims(fleet, frozenset(gone))
        return isinstance(judging.judge(after, claim, claim.seat).answer, Placed)

    if helps(()):
        return
    names = [on.name for on in on_it]
    smallest = next((n for n in range(1, len(names) + 1) if any(map(helps, itertools.combinations(names, n)))), 0)
    found = suggest(fleet)
    assert bool(found) == bool(smallest)
    assert all(len(s.claims) == smallest and helps(s.claims) for s in found)
