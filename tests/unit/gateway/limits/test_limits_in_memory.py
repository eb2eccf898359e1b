"""What one gateway grants from its own memory, in virtual time."""

import pytest
from traffic_builders import charge, endpoint, endpoints, rps, user

from aibrix_operator.gateway.limits.batch import TRIED, asked
from aibrix_operator.gateway.limits.limiter import Denied, Granted, Limit
from aibrix_operator.gateway.limits.memory import MemoryLimiter
from aibrix_operator.gateway.limits.windows import Counts


def verdicts(answers):
    return [answer.limit if isinstance(answer, Denied) else "granted" for answer in answers]


def test_what_has_no_limit_is_granted_and_takes_no_slot():
    assert MemoryLimiter().admit(asked := charge()) == Granted(asked, None)


@pytest.mark.acceptance("GW-76")
def test_requests_over_rpm_are_refused_until_the_next_minute():
    limiter = MemoryLimiter()
    ann = user(rpm=2)
    answers = [limiter.admit(charge(now_s, user=ann)) for now_s in (10, 20, 45.5, 59.9, 60)]
    assert verdicts(answers) == ["granted", "granted", Limit.RPM, Limit.RPM, "granted"]
    assert [answer.retry_after_s for answer in answers if isinstance(answer, Denied)] == [15, 1]
    assert [answer.rpm for answer in answers if isinstance(answer, Granted)] == [1, 2, 1]


def test_a_request_that_was_counted_before_is_neither_counted_nor_refused_by_rpm_again():
    limiter = MemoryLimiter()
    ann = user(rpm=1, tpm=10)
    answers = [limiter.admit(charge(1, user=ann, rpm_is_spent=spent)) for spent in (False, True, False)]
    assert verdicts(answers) == ["granted", "granted", Limit.RPM]
    assert answers[1].rpm == 1
    limiter.settle(answers[1], 10, 2)
    assert verdicts([limiter.admit(charge(3, user=ann, rpm_is_spent=True))]) == [Limit.TPM]


@pytest.mark.acceptance("GW-77")
def test_tokens_over_tpm_refuse_the_next_request_which_spends_its_rpm_all_the_same():
    limiter = MemoryLimiter()
    ann = user(rpm=3, tpm=100)
    first = limiter.admit(charge(1, user=ann, tokens=20))
    limiter.settle(first, 150, 2)
    assert verdicts(limiter.admit(charge(now_s, user=ann)) for now_s in (3, 4, 5)) == [Limit.TPM, Limit.TPM, Limit.RPM]


def test_a_reserve_counts_until_the_real_tokens_take_its_place():
    limiter = MemoryLimiter()
    ann = user(tpm=100)
    first = limiter.admit(charge(1, user=ann, tokens=100))
    assert verdicts([limiter.admit(charge(2, user=ann, tokens=10))]) == [Limit.TPM]
    limiter.settle(first, 30, 3)
    assert limiter.admit(charge(4, user=ann, tokens=10)).tpm == 40


def test_of_a_request_that_ends_in_a_later_minute_only_tokens_over_its_reserve_are_charged_there():
    limiter = MemoryLimiter()
    ann = user()
    short, long = (limiter.admit(charge(59, user=ann, tokens=50)) for _ in range(2))
    limiter.settle(short, 10, 61)
    limiter.settle(long, 70, 61)
    assert limiter.admit(charge(62, user=ann)).tpm == 20


def test_nothing_is_charged_for_a_failure():
    limiter = MemoryLimiter()
    ann = user()
    limiter.settle(limiter.admit(charge(1, user=ann, tokens=50)), None, 2)
    assert limiter.admit(charge(3, user=ann)).tpm == 0


def test_a_request_that_is_refused_anyway_spends_the_users_rpm_and_nothing_else():
    limiter = MemoryLimiter()
    ann = user(rpm=1)
    answer = limiter.admit(charge(1, to=(), user=ann, tokens=50, rps=rps(1), inflight=1))
    assert (answer.rpm, answer.tpm, answer.holds_slot) == (1, 0, False)
    assert verdicts([limiter.admit(charge(2, user=ann))]) == [Limit.RPM]
    assert verdicts([limiter.admit(charge(1, rps=rps(1), inflight=1))]) == ["granted"]


def test_a_model_takes_its_requests_a_second_and_as_many_in_the_next():
    limiter = MemoryLimiter()
    assert (
        verdicts(limiter.admit(charge(1.5, rps=rps(5))) for _ in range(20)) == ["granted"] * 5 + [Limit.MODEL_RPS] * 15
    )
    assert verdicts([limiter.admit(charge(2, rps=rps(5)))]) == ["granted"]


@pytest.mark.acceptance("GW-82")
def test_less_than_one_request_a_second_is_one_in_a_longer_window():
    limiter = MemoryLimiter()
    times = [0, 1, 5.9, 6, 11, 12]
    answers = [limiter.admit(charge(now_s, rps=rps(1, window_s=6))) for now_s in times]
    granted = [now_s for now_s, answer in zip(times, answers, strict=True) if isinstance(answer, Granted)]
    assert granted == [0, 6, 12]
    assert answers[1].retry_after_s == 5


@pytest.mark.acceptance("GW-81")
def test_a_refund_goes_to_the_window_that_was_charged_and_to_no_other():
    limiter = MemoryLimiter()
    same, late = (limiter.admit(charge(1.1, rps=rps(2))) for _ in range(2))
    limiter.refund(same, 1.2)
    assert verdicts([limiter.admit(charge(1.3, rps=rps(2)))]) == ["granted"]
    limiter.admit(charge(2.1, rps=rps(2)))
    limiter.refund(late, 2.2)
    assert verdicts(limiter.admit(charge(2.3, rps=rps(2))) for _ in range(2)) == ["granted", Limit.MODEL_RPS]


@pytest.mark.acceptance("GW-85")
def test_a_full_endpoint_is_passed_over_and_all_full_is_refused():
    limiter = MemoryLimiter()
    first, second = pods = endpoints(2)
    answers = [limiter.admit(charge(to=pods, inflight=2)) for _ in range(5)]
    assert [a.endpoint for a in answers if isinstance(a, Granted)] == [first, first, second, second]
    assert answers[4] == Denied(Limit.INFLIGHT)
    limiter.settle(answers[2], None, 0)
    assert limiter.admit(charge(to=pods, inflight=2)).endpoint is second


@pytest.mark.acceptance("GW-87")
def test_a_model_over_its_rate_is_told_so_before_its_slots_are_looked_at():
    limiter = MemoryLimiter()
    limits = {"rps": rps(1), "inflight": 1}
    assert verdicts(limiter.admit(charge(1, **limits)) for _ in range(2)) == ["granted", Limit.MODEL_RPS]


def test_no_free_slot_leaves_rate_and_tokens_uncharged():
    limiter = MemoryLimiter()
    ann = user()
    holding = limiter.admit(charge(1, inflight=1))
    full = charge(1, user=ann, tokens=50, rps=rps(1), inflight=1)
    assert limiter.admit(full) == Denied(Limit.INFLIGHT)
    limiter.settle(holding, None, 1)
    after = limiter.admit(charge(1, user=ann, rps=rps(1), inflight=1))
    assert (after.rpm, after.tpm) == (2, 0)


def test_settling_or_refunding_a_second_time_changes_nothing():
    limiter = MemoryLimiter()
    pod = endpoint()
    one, other = (limiter.admit(charge(1, to=(pod,), inflight=2)) for _ in range(2))
    limiter.settle(one, None, 2)
    limiter.settle(one, None, 2)
    limiter.refund(one, 2)
    assert limiter.slots.count(pod.key) == 1
    limiter.refund(other, 2)
    assert limiter.slots.held() == {}


def test_no_more_is_taken_back_than_was_counted():
    counts = Counts()
    counts.add("a", 7, 2)
    counts.take_back("a", 7, 5)
    counts.take_back("b", 7, 5)
    assert (counts.count("a", 7), counts.count("b", 7), counts.count("a", 8)) == (0, 0, 0)


def test_endpoints_that_our_own_requests_fill_are_not_asked_about():
    pods = endpoints(40)
    full = {pod.key for pod in pods[::2]}
    one = asked(charge(to=pods, inflight=2), 0.0, lambda key: 2 if key in full else 1)
    assert [*one.endpoints, *one.rest] == list(pods[1::2])
    assert len(one.endpoints) == TRIED
