"""What a forwarded request carries, and what is counted for it."""

import asyncio

import pytest
from gateway_asks import chat, form, model, part, profile, sleeping, view
from gateway_exchanges import Gateway, SlowLimiter, SlowStore, error, status, told, user

from aibrix_operator.gateway.exchange import Forwarded
from aibrix_operator.gateway.strategies.base import BEFORE, Pick

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.acceptance("GW-1")
@pytest.mark.acceptance("GW-18")
def test_both_sides_are_told_where_it_goes():
    gateway = Gateway(view(model(pods=1)))
    answer = gateway.ask(routing_strategy="random", traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
    (lease,) = gateway.watching.leases
    assert dict(answer.upstream) == {
        "x-went-into-req-headers": "true",
        "routing-strategy": "random",
        "target-pod": "10.0.0.1:8000",
        "x-request-id": TRACE,
        "x-aibrix-lease": lease.id,
    }
    assert dict(answer.client) == {
        "x-went-into-req-headers": "true",
        "request-id": TRACE,
        "routing-strategy": "random",
        "target-pod": "p0000",
        "target-pod-ip": "10.0.0.1:8000",
    }


def test_a_request_counts_at_its_endpoint_until_its_lease_is_closed():
    gateway = Gateway(view(model(pods=2)))
    pods = [told(gateway.ask())["target-pod"] for _ in range(4)]
    assert sorted(pods) == ["p0000", "p0000", "p0001", "p0001"]
    for lease in gateway.watching.leases:
        gateway.leases.close(lease.id)
    assert gateway.view.loads.own() == {}


@pytest.mark.acceptance("GW-16")
def test_another_path_for_the_engine_is_told_to_envoy():
    gateway = Gateway(view(model(engine="xdit")))
    answer = gateway.ask({"model": "m", "prompt": "a cat"}, path="/v1/images/generations?n=1")
    assert ("x-aibrix-path", "/generate?n=1") in answer.upstream


@pytest.mark.acceptance("GW-31")
def test_the_profile_that_auto_chose_is_told():
    config = {"profiles": {"short é": {"routingConfig": {"promptTokensLt": 100}}}}
    answer = Gateway(view(model(config=config))).ask(config_profile="auto")
    assert told(answer)["x-aibrix-config-profile"] == "short %C3%A9"


def test_a_known_user_is_told_what_is_used():
    gateway = Gateway(view(model()), users=[user()])
    assert [told(gateway.ask(user="ann"))["x-update-rpm"] for _ in range(2)] == ["1", "2"]
    # 2 tokens of prompt and 10 for an answer of no stated length, twice; then 5 for one of stated length
    assert told(gateway.ask(chat(max_tokens=5), user="ann"))["x-update-tpm"] == "31"


def test_a_user_beyond_ascii_is_known_by_its_bytes():
    gateway = Gateway(view(model()), users=[user("jürgen", rpm=1)])
    sent = "jürgen".encode().decode("latin-1")
    assert [status(gateway.ask(user=sent)) for _ in range(2)] == [200, 429]


def test_an_answer_of_absurd_length_reserves_a_bounded_figure():
    gateway = Gateway(view(model()), users=[user(tpm=2**40)])
    assert told(gateway.ask(chat(max_tokens=2**62), user="ann"))["x-update-tpm"] == str(2**31)


def test_embeddings_reserve_their_prompt_alone():
    gateway = Gateway(view(model()), users=[user()])
    answer = gateway.ask({"model": "m", "input": "12345678"}, path="/v1/embeddings", user="ann")
    assert told(answer)["x-update-tpm"] == "2"


@pytest.mark.acceptance("GW-10")
def test_audio_is_routed_by_its_form():
    body = form(part("file", b"\0", filename="a.wav"), part("model", "m"), part("stream", "1"))
    gateway = Gateway(view(model()))
    content_type = "multipart/form-data; boundary=frontier"
    assert status(gateway.ask(body, path="/v1/audio/transcriptions", content_type=content_type)) == 200
    assert gateway.watching.leases[0].request.stream


def test_the_prompt_is_let_go_of_once_it_is_on_its_way():
    class Reading:
        text = "reading"
        heard = ()

        def pick(self, ask):
            return Pick(ask.candidates[0])

        def admitted(self, ask, endpoint):
            self.heard = (ask.request.text_of(), endpoint.pod)

    class Book:
        routing = Reading()

        def compile(self, text, knobs):
            return self.routing

    gateway = Gateway(view(model()), book=Book())
    gateway.ask()
    assert Book.routing.heard == ("hello", "p0000")
    assert gateway.watching.leases[0].request.text_of() == ""


@pytest.mark.acceptance("GW-85")
def test_a_full_engine_is_passed_over_for_the_next():
    gateway = Gateway(view(model(pods=2, config=profile(requestsInflight=1))))
    pods = [told(gateway.ask(routing_strategy="random")).get("target-pod") for _ in range(3)]
    assert sorted(pods[:2]) == ["p0000", "p0001"]
    assert pods[2] is None


@pytest.mark.acceptance("GW-80")
def test_a_models_requests_of_a_second_are_counted_exactly():
    gateway = Gateway(view(model(config=profile(requestsPerSecond=5))))
    answers = [gateway.ask() for _ in range(20)]
    assert [status(answer) for answer in answers] == [200] * 5 + [429] * 15
    assert error(answers[-1])["message"] == "model: m has exceeded RPS: 5"
    assert told(answers[-1])["x-error-model-rps-exceeded"] == "true"


async def test_what_has_to_be_waited_for_is_waited_for():
    gateway = Gateway(view(model()), store=SlowStore(user(rpm=1)), limiter=SlowLimiter())
    answers = [await gateway.asking(user="ann") for _ in range(2)]
    assert [status(answer) for answer in answers] == [200, 429]


async def test_an_engine_that_went_while_limits_were_asked_is_not_gone_to():
    limiter = SlowLimiter()
    limiter.gate.clear()
    gateway = Gateway(view(model(pods=1, config=profile(requestsPerSecond=5))), limiter=limiter)
    asking = gateway.asking()
    await limiter.asked.wait()
    before = gateway.view.models["m"]
    gateway.change(model(pods=3, config=profile(requestsPerSecond=5)))
    limiter.gate.set()
    answer = await asking
    assert isinstance(answer, Forwarded)
    assert gateway.watching.leases[0].endpoint in gateway.view.models["m"].endpoints
    assert gateway.watching.leases[0].endpoint not in before.endpoints
    assert limiter.refunds == 1


def test_a_reserve_counts_prompts_as_the_models_engines_do():
    gateway = Gateway(view(model()), users=[user()])
    for _ in range(100):
        gateway.view.token_sizes.learn("m", 4000, 2000)
    gateway.ask(chat(messages=[{"role": "user", "content": "x" * 400}], max_tokens=7), user="ann")
    assert gateway.watching.leases[0].granted.charge.tokens == pytest.approx(200 + 7, abs=3)


@pytest.mark.parametrize("left", [3, 0], ids=["another is there", "none is left"])
async def test_a_request_whose_engine_went_meanwhile_is_one_request_of_its_user(left):
    limiter = SlowLimiter()
    limiter.gate.clear()
    gateway = Gateway(view(model(pods=1)), users=[user(rpm=2)], limiter=limiter)
    asking = gateway.asking(user="ann")
    await limiter.asked.wait()
    gateway.change(model(pods=left))
    limiter.gate.set()
    assert status(await asking) == (200 if left else 503)
    gateway.change(model(pods=3))
    assert [status(await gateway.asking(user="ann")) for _ in range(2)] == [200, 429]


async def test_an_engine_that_stayed_while_its_model_changed_is_gone_to():
    limiter = SlowLimiter()
    limiter.gate.clear()
    gateway = Gateway(view(model(pods=1)), limiter=limiter)
    asking = gateway.asking()
    await limiter.asked.wait()
    gateway.change(model(endpoints=gateway.view.models["m"].endpoints))
    limiter.gate.set()
    await asking
    assert limiter.refunds == 0


async def test_a_strategy_may_have_something_read_before_it_chooses():
    class Reading:
        text = "reading"
        known = None

        async def read(self):
            await asyncio.sleep(0)
            self.known = "p0001"

        def pick(self, ask):
            if self.known is None:
                ask.request.memo[BEFORE] = self.read
                return Pick(ask.candidates[0])
            return Pick(next(each for each in ask.candidates if each.pod == self.known))

        def admitted(self, ask, endpoint):
            assert BEFORE not in ask.request.memo

        def compile(self, text, knobs):
            return self

    gateway = Gateway(view(model()), book=Reading())
    assert told(await gateway.asking())["target-pod"] == "p0001"


def test_nothing_of_asyncio_is_touched_when_nothing_waits():
    # No loop runs here: anything that asked for one would raise.
    gateway = Gateway(view(model(), sleeping("s")), users=[user()])
    assert [status(gateway.ask(chat(name), user="ann")) for name in ("m", "s", "x")] == [200, 503, 400]


def test_decision_times_are_told():
    gateway = Gateway(view(model()))
    gateway.ask()
    gateway.ask(b"{")
    assert gateway.watching.times == [0.0, 0.0]
    assert gateway.watching.refusals == [("", 400, None)]
