"""What the engine's APIs make of bodies that the recording has not: streams, stop texts, and refusals."""

import json

import pytest

FAST = {"boot_seconds": 0, "tokens_per_second": 500}


async def test_a_streamed_response_numbers_its_events_and_adds_up_to_the_whole_one(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    body = {"input": "hi", "max_output_tokens": 5}
    _, whole = await engine.post("/v1/responses", body)
    async with engine.request("POST", "/v1/responses", json={**body, "stream": True}) as answer:
        assert answer.content_type == "text/event-stream"
        blocks = (await answer.text()).removesuffix("\n\n").split("\n\n")
    events = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [block.split("\n")[0] for block in blocks] == [f"event: {event['type']}" for event in events]
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 5,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    text = whole["output"][0]["content"][0]["text"]
    assert "".join(event["delta"] for event in events if "delta" in event) == text
    last = events[-1]["response"]
    assert last.keys() == whole.keys()
    assert (last["usage"], last["output"][0]["content"]) == (whole["usage"], whole["output"][0]["content"])
    assert (await engine.metric("vllm:request_success_total", finished_reason="length")) == 2


async def test_a_stop_text_and_a_system_prompt_work_for_anthropic_clients_too(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 30}
    _, plain = await engine.post("/v1/messages", body)
    text = plain["content"][0]["text"]
    assert plain["stop_reason"] == "max_tokens"
    word = text.split()[3]
    _, stopped = await engine.post("/v1/messages", {**body, "stop_sequences": [word]})
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", word)
    assert stopped["content"][0]["text"] == text.split(word, 1)[0]
    _, instructed = await engine.post("/v1/messages", {**body, "system": "be brief"})
    assert instructed["usage"]["input_tokens"] > plain["usage"]["input_tokens"]
    assert instructed["content"] != plain["content"]


async def test_anthropic_clients_get_errors_in_their_shape(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    body = {"model": "nope", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    message = "The model `nope` does not exist. Valid aliases: a."
    expected = {"type": "error", "error": {"type": "NotFoundError", "message": message}}
    assert await engine.post("/v1/messages", body) == (404, expected)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        pytest.param({"messages": "hi"}, "body.messages", "Input should be a valid list", id="wrong type"),
        pytest.param({}, "body.messages", "Field required", id="missing"),
        pytest.param({"messages": [{"role": "user"}], "n": 2}, "n", "one answer", id="several answers"),
        pytest.param({"messages": ["hi"]}, "messages", "an object with a role", id="no message"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None, "multimodal", id="a picture"
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 99_999},
            "max_tokens",
            "maximum context length is 4096 tokens",
            id="more than the context",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": "a " * 5000}]},
            "input_tokens",
            "5004 input tokens",
            id="long prompt",
        ),
    ],
)
async def test_a_body_that_can_not_be_served_is_refused_with_its_field(engines, profiles, body, param, words):
    engine = await engines.up("a", environ=profiles(a=FAST))
    status, answer = await engine.post("/v1/chat/completions", body)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, 400, param)
    assert words in answer["error"]["message"]


async def test_a_body_that_is_not_declared_as_json_is_refused(engines, profiles):
    engine = await engines.up("a", environ=profiles(a=FAST))
    async with engine.request(
        "POST", "/v1/chat/completions", data=b"{}", headers={"content-type": "text/plain"}
    ) as answer:
        assert answer.status == 400
        assert "Only 'application/json' is allowed" in (await answer.json())["error"]["message"]
