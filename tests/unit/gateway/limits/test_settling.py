"""Envoy's log put to account: every way that a request can end gives back what it held, once."""

import logging

import pytest
from traffic_builders import HeardRouting, charge, endpoint, forward, request, user

from aibrix_operator.gateway.leases import Leases
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.settlement import Ended, StillRunning
from aibrix_operator.gateway.settling import Settling
from aibrix_operator.gateway.strategies.base import Usage
from aibrix_operator.gateway.token_sizes import TokenSizes


class Heard:
    def __init__(self):
        self.ends, self.expiries, self.unknown = [], [], 0

    def ended(self, lease, ended, account):
        self.ends.append((lease, ended, account))

    def expired(self, lease):
        self.expiries.append(lease)

    def unknown_lease(self):
        self.unknown += 1


class Gateway:
    """Leases, a limiter and what settles them."""

    def __init__(self):
        self.loads = Loads()
        self.limiter = MemoryLimiter()
        self.leases = Leases(self.loads, 30)
        self.heard = Heard()
        self.sizes = TokenSizes()
        self.settling = Settling(self.leases, self.limiter, self.heard, self.sizes)
        self.pod = endpoint()

    def send(self, now_s=0.0, routing=None, prompt_bytes=40, **limits):
        granted = self.limiter.admit(charge(now_s, to=(self.pod,), inflight=5, **limits))
        of = request(prompt_bytes=prompt_bytes, stream=True)
        return self.leases.open(forward(self.pod, of, routing), granted, of, now_s)

    def pass_time(self, from_s, to_s):
        for now_s in range(from_s, to_s + 1):
            self.settling.sweep(now_s)

    def holds(self):
        return self.loads.count(self.pod), self.limiter.slots.count(self.pod.key)


def ended(lease, status=200, *flags, first_byte_s=0.1, response_bytes=2000, **fields):
    return Ended(lease.id, status, frozenset(flags), 1.0, first_byte_s, 0, response_bytes, **fields)


@pytest.mark.acceptance("GW-86")
@pytest.mark.acceptance("GW-117")
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda lease: ended(lease, total_tokens=80), id="normal"),
        pytest.param(lambda lease: ended(lease, 500), id="500"),
        pytest.param(lambda lease: ended(lease, 200, "UC"), id="upstream-reset"),
        pytest.param(lambda lease: ended(lease, 200, "DC"), id="client-left"),
        pytest.param(lambda lease: ended(lease, 0, "DC", first_byte_s=None, response_bytes=0), id="client-left-early"),
    ],
)
def test_a_request_counts_once_and_is_given_back_once_however_it_ends(end):
    gateway = Gateway()
    lease = gateway.send()
    assert gateway.holds() == (1, 1)
    gateway.settling.take([end(lease), end(lease)], 1)
    gateway.pass_time(1, 60)
    assert gateway.holds() == (0, 0)
    assert (len(gateway.heard.ends), gateway.heard.unknown, gateway.heard.expiries) == (1, 1, [])
    assert len(lease.forward.routing.ended_with) == 1


@pytest.mark.acceptance("GW-115")
def test_tokens_are_charged_once_and_the_slot_is_held_until_the_end():
    gateway = Gateway()
    ann = user()
    lease = gateway.send(user=ann, tokens=500)
    gateway.settling.take([StillRunning(lease.id)], 10)
    assert gateway.holds() == (1, 1)
    gateway.settling.take([ended(lease, prompt_tokens=30, completion_tokens=50, total_tokens=80)], 20)
    assert gateway.holds() == (0, 0)
    assert gateway.limiter.admit(charge(21, user=ann)).tpm == 80
    assert lease.forward.routing.ended_with == [(lease.request, gateway.pod, Usage(30, 50, 80))]


def test_what_an_engine_counted_of_a_prompt_is_learned_from_and_an_estimate_is_not():
    gateway = Gateway()
    for fields in ({}, {"prompt_tokens": 2000, "completion_tokens": 1, "total_tokens": 2001}):
        before = gateway.sizes.tokens("m", 4000)
        for _ in range(50):
            gateway.settling.take([ended(gateway.send(prompt_bytes=4000), **fields)], 1)
        learned = gateway.sizes.tokens("m", 4000)
        assert (before, learned) == ((1000, 1000) if not fields else (1000, pytest.approx(2000, rel=0.02)))


def test_a_client_that_left_is_charged_its_prompt_and_what_it_was_sent():
    gateway = Gateway()
    ann = user()
    gateway.settling.take([ended(gateway.send(user=ann, tokens=500), 200, "DC", response_bytes=2000)], 1)
    assert gateway.limiter.admit(charge(2, user=ann)).tpm == 10 + 10


def test_a_long_stream_keeps_its_slot_while_the_log_tells_that_it_goes_on():
    gateway = Gateway()
    lease = gateway.send()
    for now_s in range(10, 1210, 10):
        gateway.settling.take([StillRunning(lease.id)], now_s)
        gateway.settling.sweep(now_s)
    assert gateway.holds() == (1, 1)
    gateway.pass_time(1200, 1230)
    assert gateway.holds() == (0, 0)
    assert gateway.heard.expiries == [lease]
    assert lease.forward.routing.ended_with == [(lease.request, gateway.pod, None)]


def test_an_expired_request_is_charged_nothing_and_its_late_end_is_counted_as_unknown():
    gateway = Gateway()
    ann = user()
    lease = gateway.send(user=ann, tokens=500)
    gateway.pass_time(0, 31)
    gateway.settling.take([StillRunning(lease.id), ended(lease, total_tokens=80)], 32)
    assert gateway.limiter.admit(charge(33, user=ann)).tpm == 0
    assert (gateway.heard.unknown, gateway.heard.ends) == (2, [])


def test_entries_without_a_lease_and_of_others_leases_change_nothing():
    gateway = Gateway()
    gateway.send()
    gateway.settling.take([Ended("", 413, frozenset(), 0.1), Ended("other-1", 200, frozenset(), 0.1)], 1)
    assert gateway.holds() == (1, 1)
    assert gateway.heard.unknown == 1


class Faulty(HeardRouting):
    def ended(self, request, endpoint, usage):
        raise ZeroDivisionError


def test_a_faulty_strategy_does_not_keep_the_rest_of_the_log_from_being_read(caplog):
    gateway = Gateway()
    leases = [gateway.send(routing=Faulty()), gateway.send(), gateway.send(routing=Faulty()), gateway.send()]
    with caplog.at_level(logging.CRITICAL):
        gateway.settling.take(map(ended, leases[:2]), 1)
        gateway.pass_time(1, 60)
    assert gateway.holds() == (0, 0)
    assert (len(gateway.heard.ends), len(gateway.heard.expiries)) == (2, 2)
