"""A forwarded request counts from its admission until one end, whichever comes first."""

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
    assert leases.renew(told.id, 20) is told
    assert leases.expired(29.9) == []
    assert leases.expired(30) == [silent]
    assert loads.count(pod) == 1
    assert leases.renew(silent.id, 31) is None
    assert leases.expired(50) == [told]
    assert loads.own() == {}


def test_no_two_gateways_give_the_same_id():
    some = [Leases(Loads(), 30) for _ in range(3)]
    assert len({leases.new_id() for leases in some for _ in range(100)}) == 300
