"""Which copies go first, how percentages round, and which role's turn it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aibrix_operator.stormservice import rollout
from aibrix_operator.stormservice.rollout import NOTHING, Bounds, Copy, RoleCopies, Shares, Step


def copies(words: str) -> list[Copy]:
    """``o1 n2- o3T``: outdated or new, a number, not ready (-), terminating (T), draining (D), in place (P)."""
    return [
        Copy(
            word.rstrip("-TDP"),
            is_updated=word[0] == "n",
            is_ready=not set("-T") & set(word),
            is_terminating="T" in word,
            is_leaving="D" in word,
            is_updating="P" in word,
            born=(word[1:].rstrip("-TDP"), ""),
        )
        for word in words.split()
    ]


def in_slots(words: str) -> list[Copy]:
    """``0:o1 1:n2-``: the slot before a copy; ``?`` where it has none."""
    held = [(word.partition(":")[0], word.partition(":")[2]) for word in words.split()]
    made = copies(" ".join(word for _, word in held))
    return [replace(c, slot=None if slot == "?" else int(slot)) for c, (slot, _) in zip(made, held, strict=True)]


@pytest.mark.acceptance("SS-29")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param((3, "25%", "25%"), Bounds(3, 1, 0), id="surge up, unavailable down"),
        pytest.param((3, None, None), Bounds(3, 0, 1), id="nothing given is one unavailable"),
        pytest.param((3, 0, "10%"), Bounds(3, 0, 1), id="both round to 0"),
        pytest.param((2, 1, 5), Bounds(2, 1, 2), id="unavailable is capped"),
        pytest.param((0, 1, 1), Bounds(0, 0, 0), id="no replicas"),
    ],
)
def test_bounds_round_as_deployments_do(given, expected):
    assert rollout.bounds(*given) == expected


@pytest.mark.parametrize(
    ("limits", "seen", "expected"),
    [
        pytest.param(Bounds(3, 1, 1), "o1 o2 o3", Shares(0, 1, ("o1",)), id="delete one and create one"),
        pytest.param(Bounds(3, 1, 1), "o1T o2 o3 n4-", Shares(), id="wait for the new one"),
        pytest.param(Bounds(3, 1, 1), "o2 o3 n4", Shares(0, 1, ("o2",)), id="and so on"),
        pytest.param(Bounds(3, 1, 0), "o1 o2 o3", Shares(0, 1), id="create first where none may be missing"),
        pytest.param(Bounds(3, 0, 1), "o1T o2 o3", Shares(), id="one that is going holds its place"),
        pytest.param(Bounds(1, 0, 1), "o1", Shares(0, 0, ("o1",)), id="a lone one goes first"),
        pytest.param(Bounds(3, 0, 1), "o1 o2- o3", Shares(0, 0, ("o2",)), id="one that is not ready costs nothing"),
        pytest.param(Bounds(3, 1, 0), "n1 n2 n3", Shares(), id="nothing outdated"),
    ],
)
def test_a_rolling_update_takes_the_next_step(limits, seen, expected):
    assert rollout.roll_copies(limits, copies(seen)) == expected


@pytest.mark.acceptance("SS-24")
@pytest.mark.parametrize(
    ("limits", "seen", "expected"),
    [
        pytest.param(Bounds(1, 0, 1), "n1 n2-", Shares(0, 0, ("n2",)), id="the ready one survives"),
        pytest.param(Bounds(3, 1, 0), "o1 o2 o3 n4", Shares(0, 0, ("o1",)), id="the surplus of a surge is outdated"),
        pytest.param(Bounds(3, 1, 0), "o1 o2 o3 n4-", Shares(), id="stop at the floor"),
        pytest.param(Bounds(4, 1, 0), "o1 o2 o3T", Shares(0, 2), id="going ones count against the ceiling"),
        pytest.param(Bounds(0, 0, 0), "o1 n2", Shares(0, 0, ("o1", "n2")), id="none wanted"),
    ],
)
def test_scaling_rolesets(limits, seen, expected):
    assert rollout.scale_copies(limits, copies(seen), keeps_shares=False) == expected


@pytest.mark.acceptance("SS-28")
def test_a_paused_update_grows_in_shares():
    seen = copies("o1 o2 o3 n4")
    assert rollout.scale_copies(Bounds(8, 0, 1), seen, keeps_shares=True) == Shares(3, 1)


@pytest.mark.acceptance("SS-40")
@pytest.mark.parametrize(
    ("wanted", "gone"), [(3, ("o1",)), (2, ("o1", "o2")), (1, ("o1", "o2", "n3")), (0, ("o1", "o2", "n3", "n4"))]
)
def test_a_pool_shrinks_outdated_and_idle_ones_first(wanted, gone):
    step = rollout.scale_pool(Bounds(wanted, 0, wanted), copies("n4 n3- o2 o1-"))
    assert step == Step(delete=gone)


@pytest.mark.acceptance("SS-40")
def test_a_pool_stops_at_its_floor():
    assert rollout.scale_pool(Bounds(2, 1, 0), copies("o1 o2 n3-")) == NOTHING


@pytest.mark.acceptance("SS-43")
def test_idle_outdated_copies_at_the_floor_are_replaced_and_a_surge_stays():
    limits = Bounds(2, 1, 0)
    seen = copies("o1- o2- n3-")
    assert rollout.scale_pool(limits, seen).delete == ("o2",)
    assert rollout.roll_pool(limits, copies("o1- n3-"), 2, frozenset()) == Step((None,), ("o1",))


@pytest.mark.acceptance("DR-01")
def test_a_draining_copy_is_chosen_again():
    assert rollout.scale_pool(Bounds(1, 0, 1), copies("n1D n2-")).delete == ("n1",)
    assert rollout.scale_pool(Bounds(1, 0, 1), copies("n1D n2 n3T")).delete == ("n1",)


@pytest.mark.acceptance("SS-41")
@pytest.mark.parametrize(
    ("limits", "seen", "expected"),
    [
        pytest.param(Bounds(3, 0, 1), "0:n1 2:n3", Step(create=(1,)), id="a lost slot is filled"),
        pytest.param(Bounds(2, 0, 1), "0:n1 1:n2 2:n3", Step(delete=("n3",)), id="unwanted slots go"),
        pytest.param(Bounds(1, 0, 1), "0:n1 ?:n2", Step(delete=("n2",)), id="no index, no place"),
        pytest.param(Bounds(1, 0, 1), "0:n1T", NOTHING, id="one that is going holds its place"),
        pytest.param(Bounds(1, 1, 0), "0:o1 0:n2", Step(delete=("o1",)), id="the new one is ready"),
        pytest.param(Bounds(1, 1, 0), "0:o1 0:n2-", NOTHING, id="the new one is not"),
        pytest.param(Bounds(1, 1, 0), "0:o1- 0:n2-", Step(delete=("o1",)), id="neither is"),
        pytest.param(Bounds(1, 1, 0), "0:n1 0:n2", Step(delete=("n2",)), id="the older of equals stays"),
    ],
)
def test_slots_are_filled_once(limits, seen, expected):
    assert rollout.scale_slots(limits, in_slots(seen)) == expected


@pytest.mark.parametrize(
    ("limits", "seen", "expected"),
    [
        pytest.param(Bounds(2, 0, 1), "0:o1 1:o2", Step(delete=("o1",)), id="by index"),
        pytest.param(Bounds(2, 1, 0), "0:o1 1:o2", Step(create=(0,)), id="beside, where none may be missing"),
        pytest.param(Bounds(2, 0, 1), "0:o1 1:o2-", Step(delete=("o2",)), id="an idle one first"),
        pytest.param(Bounds(2, 0, 1), "0:o1 1:o2D", Step(delete=("o2",)), id="one that drains has the budget"),
    ],
)
def test_slots_are_rolled_one_by_one(limits, seen, expected):
    assert rollout.roll_slots(limits, in_slots(seen), limits.wanted, frozenset()) == expected


@pytest.mark.acceptance("SS-35")
@pytest.mark.parametrize(
    ("limits", "seen", "begun"),
    [
        pytest.param(Bounds(3, 0, 1), "o1 o2 o3", ("o1",), id="one of three"),
        pytest.param(Bounds(3, 0, 1), "o1P o2 o3", (), id="a ready one under way has the budget"),
        pytest.param(Bounds(3, 0, 1), "o1P- o2 o3", (), id="so has one that is not ready"),
        pytest.param(Bounds(3, 0, 1), "o1- o2- o3", ("o1", "o2"), id="idle ones are free"),
        pytest.param(Bounds(3, 0, 1), "n1 o2 o3", ("o2",), id="the next"),
    ],
)
def test_copies_are_updated_in_place_within_the_floor(limits, seen, begun):
    assert rollout.roll_in_place(limits, copies(seen), limits.wanted) == begun


def role(name: str, seen: str, wanted: int, order: int | None = None) -> RoleCopies:
    return RoleCopies(name, Bounds(wanted, 0, 1), tuple(copies(seen)), False, order)


@pytest.mark.acceptance("SS-37")
def test_the_next_role_waits_until_the_one_before_is_ready_and_its_old_copies_are_gone():
    last, second, first = role("c", "o1", 1), role("b", "o1", 1, 2), role("a", "n1", 1, 1)
    assert [r.name for r in rollout.sequential([last, second, first])] == ["a", "b"]
    for unsettled in ("n1-", "n1 o2T", "o1", ""):
        assert [r.name for r in rollout.sequential([last, second, role("a", unsettled, 1, 1)])] == ["a"]


@pytest.mark.acceptance("SS-37")
def test_equal_orders_keep_the_order_of_the_spec():
    roles = [role(name, "n1", 1, order) for name, order in (("d", None), ("b", 1), ("a", 1), ("c", None))]
    assert [r.name for r in rollout.sequential(roles)] == ["b", "a", "d", "c"]


@pytest.mark.acceptance("SS-36")
def test_the_faster_role_waits_for_the_slower():
    fast, slow = role("fast", "n1 o2", 2), role("slow", "n1- o2", 2)
    assert [(r.name, target) for r, target in rollout.interleaved([fast, slow])] == [("slow", 1)]
    assert [(r.name, t) for r, t in rollout.interleaved([fast, role("slow", "n1 o2", 2)])] == [("fast", 2), ("slow", 2)]


def test_an_old_template_that_was_bad_does_not_hold_an_interleaved_update_up():
    assert [target for _, target in rollout.interleaved([role("a", "n1 o2- o3-", 3)])] == [2]
