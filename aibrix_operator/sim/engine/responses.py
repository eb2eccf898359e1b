"""OpenAI's Responses route: whole answers in vLLM's recorded shape, streams with the events of OpenAI's reference."""

from collections.abc import AsyncIterator
from typing import Any

import orjson

from aibrix_operator.sim.engine import errors
from aibrix_operator.sim.engine.http import HttpRequest, Response, Stream, json_response
from aibrix_operator.sim.engine.scheduler import Request
from aibrix_operator.sim.engine.serving import Serving, chat_prompt, new_id, now

_OPTIONAL = {
    "model": errors.STRING,
    "max_output_tokens": errors.INTEGER,
    "instructions": errors.STRING,
    "stream": errors.BOOLEAN,
    "temperature": errors.NUMBER,
    "top_p": errors.NUMBER,
    "metadata": errors.OBJECT,
    "user": errors.STRING,
}

Json = dict[str, Any]


class Responses:
    """The handler of ``/v1/responses``."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def create(self, http: HttpRequest) -> Response | Stream:
        body = errors.read_body(http, {"input": errors.TEXT_OR_LIST}, _OPTIONAL)
        model = self._serving.choose_model(body.get("model"))
        messages = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        if body.get("instructions"):
            messages = [{"role": "system", "content": body["instructions"]}, *messages]
        request = self._serving.start(model, chat_prompt(messages), body, body.get("max_output_tokens"))
        if body.get("stream"):
            return self._serving.stream(request, _events(request, _opening(request, model, body)))
        await self._serving.finish(request)
        return json_response({**_opening(request, model, body), **_closing(request, new_id("msg_"))})


async def _events(request: Request, opening: Json) -> AsyncIterator[bytes]:
    events = _Events()
    item = {"id": new_id("msg_"), "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    start = [
        events.make("response.created", response=opening),
        events.make("response.in_progress", response=opening),
        events.make("response.output_item.added", output_index=0, item=item),
        events.make("response.content_part.added", **place, part=_text("")),
    ]
    async for positions, _ in request.outputs():
        pieces = (request.answer.piece(at) for at in positions)
        deltas = [events.make("response.output_text.delta", **place, delta=piece, logprobs=[]) for piece in pieces]
        yield b"".join([*start, *deltas])
        start = []
    closing = _closing(request, str(item["id"]))
    (done,) = closing["output"]
    (part,) = done["content"]
    yield b"".join(
        [
            events.make("response.output_text.done", **place, text=part["text"], logprobs=[]),
            events.make("response.content_part.done", **place, part=part),
            events.make("response.output_item.done", output_index=0, item=done),
            events.make(f"response.{closing['status']}", response={**opening, **closing}),
        ]
    )


class _Events:
    """Server-sent events, numbered from 0."""

    def __init__(self) -> None:
        self._number = 0

    def make(self, kind: str, **fields: Any) -> bytes:
        event = {**fields, "sequence_number": self._number, "type": kind}
        self._number += 1
        return f"event: {kind}\ndata: ".encode() + orjson.dumps(event) + b"\n\n"


def _text(text: str) -> Json:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}


def _closing(request: Request, message_id: str) -> Json:
    """The fields of a response that its answer decides."""
    ended_itself = request.finish_reason == "stop"
    message = {
        "id": message_id,
        "content": [_text(request.answer.text(0, request.produced))],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "phase": None,
    }
    return {
        "incomplete_details": None if ended_itself else {"reason": "max_output_tokens"},
        "output": [message],
        "status": "completed" if ended_itself else "incomplete",
        "usage": _usage(request),
    }


def _opening(request: Request, model: str, body: Json) -> Json:
    """A response before its answer."""
    return {
        "id": new_id("resp_"),
        "created_at": now(),
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata"),
        "model": model,
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "temperature": float(body.get("temperature", 1.0)),
        "tool_choice": "none",
        "tools": [],
        "top_p": float(body.get("top_p", 1.0)),
        "background": False,
        "max_output_tokens": request.max_tokens,
        "max_tool_calls": None,
        "previous_response_id": None,
        "prompt": None,
        "reasoning": None,
        "service_tier": "auto",
        "status": "in_progress",
        "text": None,
        "top_logprobs": None,
        "truncation": "disabled",
        "usage": None,
        "user": body.get("user"),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def _usage(request: Request) -> Json:
    return {
        "input_tokens": request.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": 0,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": request.produced,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": request.prompt_tokens + request.produced,
    }
