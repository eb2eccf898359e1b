"""The laws' checkers find what they are there for, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_builders import asleep, card, cards, serving, starting

from aibrix_operator.ledger import audit


@pytest.mark.parametrize(
    ("account", "limits", "found"),
    [
        pytest.param(
            card(1000, serving("a", 300, 100), serving("b", 300, 100)),
            {"a": 200, "b": 200},
            [],
            id="exactly full",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), serving("b", 300, 100)),
            {"a": 200, "b": 201},
            ["pod-a: footprints and KV limits sum to 1001 bytes, and the card has 1000"],
            id="a byte too many",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), starting("b", 300, 100)),
            {"a": 301},
            ["pod-a: footprints and KV limits sum to 1001 bytes, and the card has 1000"],
            id="a recorded newcomer is owed its floor",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), asleep("b", 300, 100, mapped=20, lent=60)),
            {"a": 640, "b": 600},
            [],
            id="a sleeper without reserve counts as measured, whatever its limit",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100, mapped=250)),
            {"a": 249},
            ["pod-a: a has a KV limit of 249 bytes, and maps 250"],
            id="limited below what is mapped",
        ),
        pytest.param(
            card(1000, starting("a", 300, 100)),
            {"a": 99},
            ["pod-a: a is awake with a KV limit of 99 bytes, below its floor of 100"],
            id="awake below its floor",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100, mapped=100)),
            {"a": 100},
            [],
            id="awake, and limited to its floor and to what it maps",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), starting("b", 300, 100)),
            {"b": 1},
            ["pod-a: b is awake with a KV limit of 1 bytes, below its floor of 100"],
            id="limited to a byte, behind one that has no limit yet",
        ),
        pytest.param(
            card(350, starting("a", 300, 100)),
            {"a": 50},
            ["pod-a: a is awake with a KV limit of 50 bytes, below its floor of 100"],
            id="awake below its floor on a full card: no reserve is concerned",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), asleep("b", 300, 100, mapped=20)),
            {"a": 250, "b": 50},
            [],
            id="asleep below its floor, with the rest of it free",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), asleep("b", 300, 100, mapped=20)),
            {"a": 301, "b": 50},
            ["pod-a: b could not wake: the floors lack 50 bytes, and 49 are left"],
            id="a reserve given away",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), asleep("b", 300, 100)),
            {"a": 300, "b": 50},
            [],
            id="a reserve that is just there",
        ),
        pytest.param(
            card(1000, serving("a", 300, 100), asleep("b", 300, 100)),
            {"a": 301, "b": 99},
            ["pod-a: b could not wake: the floors lack 1 bytes, and 0 are left"],
            id="a byte of a reserve given away",
        ),
        pytest.param(
            card(1299, serving("a", 300, 100), asleep("b", 300, 100), asleep("c", 300, 100)),
            {"a": 100, "b": 50, "c": 200},
            ["pod-a: b could not wake: the floors lack 50 bytes, and 49 are left"],
            id="a sleeper held above its floor makes up for no other",
        ),
        pytest.param(
            card(1500, serving("a", 300, 100), asleep("b", 300, 100), asleep("c", 300, 100)),
            {"a": 450, "b": 50, "c": 50},
            ["pod-a: b, c could not wake: the floors lack 100 bytes, and 50 are left"],
            id="two reserves that are there only once",
        ),
        pytest.param(
            card(700, serving("a", 300, 100, mapped=200), asleep("b", 300, 100)),
            {"a": 150, "b": 50},
            [
                "pod-a: footprints and KV limits sum to 800 bytes, and the card has 700",
                "pod-a: a has a KV limit of 150 bytes, and maps 200",
                "pod-a: b could not wake: the floors lack 50 bytes, and 0 are left",
            ],
            id="every law at once",
        ),
    ],
)
def test_violations_name_the_pod_the_claim_and_both_figures(account, limits, found):
    assert audit.violations(account, limits) == found


@given(cards(), st.dictionaries(st.sampled_from([f"claim-{letter}" for letter in "abcdefgh"]), st.integers(0, 900)))
def test_promises_that_keep_law_one_leave_room_for_what_they_promise(account, limits):
    taken = sum(
        o.lent_footprint_bytes or o.seat.footprint_bytes + (limits.get(o.claim) or o.seat.kv_floor_bytes)
        for o in account.occupants
    )
    assert (audit.over_promised(account, limits) == []) == (taken <= account.usable_bytes)
