"""The official Python clients of OpenAI and Anthropic, pointed at the gateway and at nothing else."""

from __future__ import annotations

import json
import os
import signal

import anthropic
import openai
import pytest

from aibrix_operator.sandbox import processes
from e2e.api import eventually
from e2e.gateway import Gateway
from e2e.pool import children_of

MODEL = "client-model"
QUESTION = [{"role": "user", "content": "Who are you?"}]


@pytest.fixture(scope="module")
def served(new_pool, gateway: Gateway) -> str:
    """Given: a claim that is Active, and known to the gateway."""
    pool = new_pool("clients")
    pool.apply(MODEL)
    pool.wait_active(MODEL)
    eventually("the gateway serves it", lambda: gateway.chat(MODEL).status == 200)
    return MODEL


@pytest.fixture
def openai_client(gateway: Gateway):
    with openai.OpenAI(base_url=f"{gateway.address.url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(gateway: Gateway):
    with anthropic.Anthropic(base_url=gateway.address.url, api_key="any", max_retries=0) as client:
        yield client


def test_openai_chat(served, openai_client):
    answer = openai_client.chat.completions.create(model=served, messages=QUESTION, max_tokens=12)
    assert answer.model == served
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_openai_chat_streamed_with_its_usage(served, openai_client):
    stream = openai_client.chat.completions.create(
        model=served, messages=QUESTION, max_tokens=12, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = openai_client.chat.completions.create(model=served, messages=QUESTION, max_tokens=12)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 12


def test_openai_completions_and_models(served, openai_client):
    answer = openai_client.completions.create(model=served, prompt="Once", max_tokens=5)
    assert answer.usage.completion_tokens == 5
    found = {model.id: model for model in openai_client.models.list()}
    assert found[served].owned_by == "aibrix"
    assert found[served].status == "active"
    assert openai_client.models.retrieve(served).id == served


def test_openai_errors_are_the_clients_own(openai_client):
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model="nobody", messages=QUESTION)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as missing:
        openai_client.models.retrieve("nobody")
    assert missing.value.code == "model_not_found"


def test_anthropic_messages(served, anthropic_client):
    answer = anthropic_client.messages.create(model=served, messages=QUESTION, max_tokens=12)
    assert (answer.model, answer.role, answer.stop_reason) == (served, "assistant", "max_tokens")
    assert answer.content[0].text
    assert answer.usage.output_tokens == 12


def test_anthropic_messages_streamed(served, anthropic_client):
    with anthropic_client.messages.stream(model=served, messages=QUESTION, max_tokens=12) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    assert text == whole.content[0].text != ""
    assert whole.usage.output_tokens == 12


def test_anthropic_counts_tokens(served, anthropic_client):
    assert anthropic_client.messages.count_tokens(model=served, messages=QUESTION).input_tokens > 0


def test_what_clients_used_is_counted(served, gateway: Gateway, openai_client):
    labels = {"model": served, "gateway_pod": gateway.pod_name}
    before = gateway.metric("gateway_output_tokens_total", **labels)
    openai_client.chat.completions.create(model=served, messages=QUESTION, max_tokens=7)
    stream = openai_client.chat.completions.create(
        model=served, messages=QUESTION, max_tokens=9, stream=True, stream_options={"include_usage": True}
    )
    list(stream)
    eventually("its tokens are counted", lambda: gateway.metric("gateway_output_tokens_total", **labels) == before + 16)
    eventually("nothing is on its way", lambda: json.loads(gateway.look("/status").text)["requests"]["running"] == 0)


def test_a_gateway_that_is_asked_to_end_lets_a_stream_finish_and_takes_no_more(
    new_pool, sandbox, gateways: list[Gateway]
):
    victim, model = gateways[-1], "streams"
    pool = new_pool("streams")
    pool.apply(model)
    pool.wait_active(model)
    eventually("the gateway serves it", lambda: victim.chat(model, max_tokens=1).status == 200)
    (process,) = children_of(sandbox.table.read()[victim.address.name].pid)
    with openai.OpenAI(base_url=f"{victim.address.url}/v1", api_key="any", max_retries=0) as client:
        stream = client.chat.completions.create(
            model=model,
            messages=QUESTION,
            max_tokens=60,
            stream=True,
            extra_body={"ignore_eos": True},
            stream_options={"include_usage": True},
        )
        first = next(iter(stream))
        os.kill(process, signal.SIGTERM)
        eventually("it takes no more", lambda: victim.chat(model, max_tokens=1).status == 503, 5.0)
        rest = list(stream)
    assert first.choices
    assert rest[-1].usage.completion_tokens == 60
    eventually("it is started again", lambda: victim.chat(model, max_tokens=1).status == 200)


def test_a_gateway_that_is_killed_comes_back_with_its_envoy_and_serves(served, sandbox, gateways: list[Gateway]):
    victim = gateways[-1]
    supervisor = sandbox.table.read()[victim.address.name]
    (child,) = eventually("it runs", lambda: children_of(supervisor.pid))
    envoys = [processes.identify(pid) for pid in children_of(child)]
    os.kill(child, 9)
    eventually("its Envoy ended with it", lambda: not any(envoy and processes.is_alive(envoy) for envoy in envoys))
    assert gateways[0].chat(served).status == 200
    eventually("it serves again", lambda: victim.chat(served).status == 200, 30.0)
