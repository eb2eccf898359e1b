"""Which records fall, and how far, on a card that they overdraw."""

from builders import make_claim, make_engine, make_fleet, make_instance, make_pod, make_snapshot

from aibrix_operator.api.pool_policy import Lifecycle, PoolPolicy
from aibrix_operator.ledger.card import Seat
from aibrix_operator.modelclaim.accounts import open_accounts
from aibrix_operator.modelclaim.cards import rightful_records
from aibrix_operator.modelclaim.snapshot import Pool
from aibrix_operator.runtime_api.wire import EnginePhase

UP, DOWN = {}, {"phase": EnginePhase.RESTARTING}
LENDS = Pool(
    "default",
    "pool-a",
    "uid",
    policy=PoolPolicy(lifecycle=Lifecycle(sleepAfterSeconds=600, noWakeReserveWhileAsleep=True)),
)


def rightful(pool=None, **engines):
    """``name=(limit in force, record, engine)`` on one card of 1000 bytes; each has a seat of 100 and 100."""
    claims = [
        make_claim(name, make_instance(limit=record), seat=Seat(100, 100)) for name, (_, record, _) in engines.items()
    ]
    models = [make_engine(name, limit=in_force, **state) for name, (in_force, _, state) in engines.items()]
    pod = make_pod("warm-0", make_snapshot(*models), pool=pool)
    return rightful_records(open_accounts(make_fleet(pod, *claims))["warm-0"])


def test_a_record_falls_to_what_its_engine_is_held_to_and_never_below_its_floor():
    assert rightful(a=(300, 9000, UP), b=(200, 200, UP)) == {"a": 300}
    assert rightful(a=(10, 9000, UP), b=(200, 200, UP)) == {"a": 100}


def test_what_an_engine_maps_past_its_limit_stays_recorded_only_if_its_card_could_have_promised_it():
    """What another hand wrote would be more than the card has again, with its neighbour's limit."""
    assert rightful(a=(200, 9000, {"mapped": 650}), b=(200, 200, UP)) == {"a": 200}
    assert rightful(a=(200, 900, {"mapped": 650}), b=(200, 200, UP)) == {"a": 650}


def test_a_grow_that_was_recorded_and_not_done_is_taken_back_with_it():
    assert rightful(a=(300, 9000, UP), b=(200, 250, UP)) == {"a": 300, "b": 200}


def test_what_is_held_to_nothing_falls_to_what_the_others_leave_and_at_least_to_its_floor():
    assert rightful(a=(1000, 9000, DOWN), b=(200, 250, UP)) == {"a": 600, "b": 200}
    assert rightful(a=(-1, 9000, UP), b=(200, 200, UP)) == {"a": 600}
    assert rightful(a=(1000, 9000, DOWN), b=(790, 790, UP)) == {"a": 100}


def test_an_engine_that_has_the_whole_card_as_its_limit_does_not_bound_a_record_past_that():
    """It came back, and takes no limit yet. A record that its card could hold alone was ours, and waits for it."""
    assert rightful(a=(1000, 9000, UP), b=(200, 250, UP)) == {"a": 600, "b": 200}
    assert rightful(a=(1000, 900, UP), b=(200, 250, UP)) == {"b": 200}


def test_only_one_of_several_gets_what_the_others_leave():
    assert rightful(a=(1000, 9000, DOWN), b=(1000, 9000, DOWN), c=(200, 200, UP)) == {"a": 400, "b": 100}


def test_a_record_that_its_card_can_hold_stays_while_its_engine_is_held_to_nothing():
    assert rightful(a=(300, 9000, UP), b=(1000, 400, DOWN)) == {"a": 300}


def test_an_engine_above_its_record_changes_nothing():
    assert rightful(a=(900, 500, UP), b=(600, 600, UP)) == {}


def test_a_sleeper_that_lent_its_seat_counts_as_what_it_holds():
    asleep = {"phase": EnginePhase.SLEEPING, "sleeping_footprint_bytes": 50}
    assert rightful(LENDS, a=(1000, 9000, DOWN), b=(100, 9000, asleep)) == {"a": 850}


def test_a_sleeper_that_is_held_to_nothing_is_promised_no_seat_again():
    """Its pool lent its seat, and lends no more: what it gave away is its neighbour's."""
    asleep = {"phase": EnginePhase.SLEEPING}
    assert rightful(a=(0, 9000, asleep), b=(850, 850, UP)) == {"a": 0}
    assert rightful(a=(0, 900, asleep | {"mapped": 20}), b=(850, 850, UP)) == {"a": 0}
    assert rightful(a=(80, 9000, asleep), b=(700, 700, UP)) == {"a": 100}, "its user declared more since"
    assert rightful(a=(100, 9000, asleep), b=(700, 700, UP)) == {"a": 100}
