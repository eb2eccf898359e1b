"""A forwarded request counts from its admission until one end, whichever comes first."""

import pytest
from traffic_builders import endpoint, endpoints, forward, granted, request

from aibrix_operator.gateway.leases import Leases
from aibrix_operator.gateway.loads import Loads


def test_a_request_counts_where_its_slot_is_rather_than_where_it_was_sent_first():
    loads = Loads()
    picked, taken = endpoints(2)
    leases = Leases(loads, 30)
    lease = leases.open(forward(picked), granted(leases.new_id(), taken, holds_slot=True), request(), 0)
    assert (lease.endpoint, loads.count(picked), loads.count(taken)) == (taken, 0, 1)


def test_a_lease_is_closed_once():
    loads = Loads()
    pod = endpoint()
    leases = Leases(loads, 30)
    lease = leases.open(forward(pod), granted(leases.new_id()), request(), 0)
    assert (loads.count(pod), len(leases)) == (1, 1)
    assert leases.close(lease.id) is lease
    assert leases.close(lease.id) is None
    assert (loads.count(pod), len(leases)) == (0, 0)


def test_leases_that_nobody_renews_expire_and_the_others_stay():
    loads = Loads()
    pod = endpoint()
    leases = Leases(loads, 30)
    silent, told = (leases.open(forward(pod), granted(leases.new_id()), request(), 0) for _ in range(2))
    expired = {}
    for now_s in range(1, 60):
        if now_s == 20:
            assert leases.renew(told.id, now_s) is told
        for lease in leases.expired(now_s):
            expired[lease.id] = (now_s, loads.count(pod))
    assert expired == {silent.id: (30, 1), told.id: (50, 0)}
    assert leases.renew(silent.id, 60) is None


@pytest.mark.parametrize("jump_s", [-3600, 3600], ids=["set-back", "set-forward"])
def test_a_clock_that_is_set_expires_nothing_that_was_renewed_in_time(jump_s):
    leases = Leases(Loads(), 30)
    lease = leases.open(forward(), granted(leases.new_id()), request(), 10_000)
    assert leases.expired(10_000 + jump_s) == []
    assert leases.renew(lease.id, 10_001 + jump_s) is lease
    expired_s = [now_s for now_s in range(10_002, 10_060) if leases.expired(now_s + jump_s)]
    assert expired_s == [10_031]


def test_no_two_gateways_give_the_same_id():
    some = [Leases(Loads(), 30) for _ in range(3)]
    assert len({leases.new_id() for leases in some for _ in range(100)}) == 300
