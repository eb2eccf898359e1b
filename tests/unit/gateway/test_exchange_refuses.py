"""Which of several reasons a client is told, what a refusal costs, and what becomes of our own faults."""

import logging

import pytest
from gateway_asks import chat, model, profile, sleeping, view
from gateway_exchanges import Gateway, SlowLimiter, error, status, told, user

from aibrix_operator.gateway.limits.limiter import Denied, Limit
from aibrix_operator.gateway.limits.users import Mode
from aibrix_operator.gateway.strategies.base import Pick


@pytest.mark.acceptance("GW-76")
def test_a_users_requests_of_a_minute_are_limited():
    gateway = Gateway(view(model()), users=[user(rpm=2)])
    answers = [gateway.ask(user="ann") for _ in range(3)]
    assert [status(answer) for answer in answers] == [200, 200, 429]
    assert error(answers[2]) == {
        "message": "user: ann has exceeded RPM: 2",
        "type": "rate_limit_error",
        "code": "rate_limit_exceeded",
        "param": None,
    }
    assert told(answers[2])["x-error-rpm-exceeded"] == "true"
    gateway.now_s += 60
    assert status(gateway.ask(user="ann")) == 200


@pytest.mark.acceptance("GW-77")
def test_a_users_tokens_of_a_minute_are_limited_and_the_request_is_spent_all_the_same():
    gateway = Gateway(view(model()), users=[user(rpm=3, tpm=10)])
    answers = [gateway.ask(user="ann") for _ in range(4)]
    assert [status(answer) for answer in answers] == [200, 429, 429, 429]
    assert told(answers[1])["x-error-tpm-exceeded"] == "true"
    assert error(answers[1])["message"] == "user: ann has exceeded TPM: 10"
    assert told(answers[3])["x-error-rpm-exceeded"] == "true"


@pytest.mark.acceptance("GW-78")
@pytest.mark.parametrize("headers", [{}, {"user": "eve"}, {"user": " "}])
def test_an_unknown_user_is_refused_where_users_are_required(headers):
    required = Gateway(view(model()), users=[user()], mode=Mode.REQUIRE).ask(**headers)
    assert (status(required), told(required)["x-error-user"]) == (401, "true")
    assert status(Gateway(view(model()), users=[user()]).ask(**headers)) == 200


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (b"{", {}),
        (chat("x"), {}),
        (chat("asleep"), {}),
        (chat(), {"routing_strategy": "no-such"}),
        (chat(), {"path": "/v1/unknown"}),
        (chat(), {"method": "GET"}),
        (chat(stream=True), {}),
    ],
    ids=["body", "model", "claim", "strategy", "path", "method", "usage"],
)
def test_a_refused_request_of_a_known_user_is_spent_and_limits_are_told_first(body, given):
    gateway = Gateway(view(model(), sleeping("asleep")), users=[user(rpm=1)])
    first, second = (gateway.ask(body, user="ann", **given) for _ in range(2))
    assert status(first) != 429
    assert status(second) == 429
    assert told(second)["x-error-rpm-exceeded"] == "true"


@pytest.mark.acceptance("GW-79")
@pytest.mark.parametrize(
    ("path", "name", "options", "expected"),
    [
        ("/v1/chat/completions", "ann", {}, 400),
        ("/v1/chat/completions", "ann", {"stream_options": {"include_usage": True}}, 200),
        ("/v1/chat/completions", "", {}, 200),
        ("/v1/messages", "ann", {}, 200),
    ],
)
def test_a_stream_of_a_user_with_a_token_limit_has_to_tell_its_usage(path, name, options, expected):
    answer = Gateway(view(model()), users=[user()]).ask(chat(stream=True, **options), path=path, user=name)
    assert status(answer) == expected
    if expected == 400:
        assert error(answer)["param"] == "stream_options"
        assert told(answer)["x-error-no-stream-options-include-usage"] == error(answer)["message"]


@pytest.mark.acceptance("GW-28")
def test_a_bad_strategy_does_not_cost_the_model_its_rate():
    gateway = Gateway(view(model(config=profile(requestsPerSecond=1))))
    assert status(gateway.ask(routing_strategy="no-such")) == 400
    assert status(gateway.ask()) == 200
    assert status(gateway.ask()) == 429


@pytest.mark.acceptance("GW-84")
@pytest.mark.acceptance("GW-87")
@pytest.mark.parametrize(("rate", "code"), [(1, "rate_limit_exceeded"), (2, "replica_inflight_exceeded")])
def test_the_rate_refuses_before_the_cap(rate, code):
    gateway = Gateway(view(model(pods=1, config=profile(requestsInflight=1, requestsPerSecond=rate))))
    answers = [gateway.ask() for _ in range(2)]
    assert [status(answer) for answer in answers] == [200, 429]
    assert error(answers[1])["code"] == code


@pytest.mark.acceptance("GW-84")
def test_with_every_engine_full_it_is_overloaded():
    gateway = Gateway(view(model(pods=2, config=profile(requestsInflight=3))))
    answers = [gateway.ask() for _ in range(7)]
    assert [status(answer) for answer in answers] == [200] * 6 + [429]
    assert told(answers[-1])["x-error-model-replica-inflight-exceeded"] == "true"
    assert error(answers[-1]) == {
        "message": "model: m has exceeded replica inflight limit: 3",
        "type": "overloaded_error",
        "code": "replica_inflight_exceeded",
        "param": None,
    }


@pytest.mark.acceptance("GW-101")
def test_each_request_for_a_sleeping_model_is_a_reason_to_wake_it():
    gateway = Gateway(view(sleeping()))
    answers = [gateway.ask() for _ in range(50)]
    assert {status(answer) for answer in answers} == {503}
    assert {told(answer)["retry-after"] for answer in answers} == {"10"}
    assert [target.claim for target in gateway.watching.woken] == ["m"] * 50


def test_a_request_over_the_users_limit_wakes_nothing():
    gateway = Gateway(view(sleeping()), users=[user(rpm=1)])
    assert [status(gateway.ask(user="ann")) for _ in range(2)] == [503, 429]
    assert len(gateway.watching.woken) == 1


def test_limits_that_cannot_be_checked_are_told_with_a_time_to_come_again():
    class Away:
        def admit(self, charge):
            return Denied(Limit.STORE)

    gateway = Gateway(view(model()), users=[user()], limiter=Away())
    answer = gateway.ask(user="ann")
    assert (status(answer), told(answer)["retry-after"]) == (503, "1")
    assert gateway.watching.refusals == [("m", 503, Limit.STORE)]


async def test_a_refusal_is_charged_also_where_that_takes_time():
    gateway = Gateway(view(), users=[user(rpm=1)], limiter=SlowLimiter())
    assert [status(await gateway.asking(user="ann")) for _ in range(2)] == [400, 429]


# --- faults of ours

SECRET = "the secret prompt"


class Broken:
    """A book whose routing fails at ``step``."""

    text = "broken"

    def __init__(self, step):
        self.step = step

    def compile(self, text, knobs):
        return self

    def pick(self, ask):
        if self.step == "pick":
            raise RuntimeError(ask.request.text_of())
        return Pick(ask.candidates[0])

    def admitted(self, ask, endpoint):
        raise RuntimeError(ask.request.text_of())


@pytest.mark.parametrize("step", ["pick", "admitted"])
def test_a_fault_of_ours_is_a_500_and_its_log_holds_no_prompt(step, caplog):
    config = profile(requestsInflight=1)
    gateway = Gateway(view(model(config=config)), book=Broken(step))
    body = chat(messages=[{"content": SECRET}])
    with caplog.at_level(logging.ERROR):
        answer = gateway.ask(body)
    assert (status(answer), error(answer)["type"]) == (500, "api_error")
    (record,) = caplog.records
    assert told(answer)["request-id"] in record.getMessage()
    assert SECRET not in record.getMessage()
    assert not record.exc_info
    assert gateway.view.loads.own() == {}
    assert gateway.limiter.slots.first_below(gateway.view.models["m"].endpoints, 1) is not None


async def test_a_fault_after_waiting_is_a_500_too(caplog):
    gateway = Gateway(view(model()), book=Broken("admitted"), limiter=SlowLimiter())
    assert status(await gateway.asking()) == 500
    assert gateway.limiter.refunds == 1
    assert len(caplog.records) == 1
