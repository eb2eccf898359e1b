"""Anthropic's routes in vLLM's shape: messages, whole and streamed, and the counting of their tokens."""

from collections.abc import AsyncIterator
from typing import Any

import orjson

from aibrix_operator.sim.engine import errors
from aibrix_operator.sim.engine.http import HttpRequest, Response, Stream, json_response
from aibrix_operator.sim.engine.scheduler import Request
from aibrix_operator.sim.engine.serving import SAMPLING, Serving, chat_prompt, content_text, new_id

_OPTIONAL = {**SAMPLING, "system": errors.TEXT_OR_LIST, "stop_sequences": errors.LIST}
_STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}


class Anthropic:
    """The handlers of ``/v1/messages``."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def messages(self, http: HttpRequest) -> Response | Stream:
        required = {"messages": errors.LIST, "max_tokens": errors.INTEGER}
        body = errors.read_body(http, required, _OPTIONAL)
        model = self._serving.choose_model(body.get("model"))
        body["stop"] = body.get("stop_sequences", [])
        request = self._serving.start(model, _prompt(body), body, body["max_tokens"])
        if body.get("stream"):
            return self._serving.stream(request, self._events(request, model))
        await self._serving.finish(request)
        return json_response(
            {
                "id": new_id("chatcmpl-"),
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": request.answer.text(0, request.produced)}],
                "model": model,
                "stop_reason": _stop_reason(request),
                **_stop_sequence(request),
                "usage": _usage(request, request.produced),
            }
        )

    async def count_tokens(self, http: HttpRequest) -> Response:
        body = errors.read_body(http, {"messages": errors.LIST}, _OPTIONAL)
        self._serving.choose_model(body.get("model"))
        count = self._serving.count_prompt(_prompt(body))
        return json_response({"input_tokens": count, "context_management": {"original_input_tokens": count}})

    async def _events(self, request: Request, model: str) -> AsyncIterator[bytes]:
        message = {"id": new_id("chatcmpl-"), "type": "message", "role": "assistant", "content": [], "model": model}
        ending = {"stop_reason": None, "stop_sequence": None}
        block = {"type": "text", "text": ""}
        opening = _event("message_start", message={**message, **ending, "usage": _usage(request, 0)})
        opening += _event("content_block_start", content_block=block, index=0)
        async for positions, _ in request.outputs():
            texts = (request.answer.piece(at) for at in positions)
            deltas = ({"type": "text_delta", "text": text} for text in texts if text)
            yield opening + b"".join(_event("content_block_delta", delta=delta, index=0) for delta in deltas)
            opening = b""
        yield (
            _event("content_block_stop", index=0)
            + _event(
                "message_delta",
                delta={"stop_reason": _stop_reason(request), "stop_sequence": None, **_stop_sequence(request)},
                usage=_usage(request, request.produced),
            )
            + _event("message_stop")
        )


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + orjson.dumps({"type": kind, **fields}) + b"\n\n"


def _prompt(body: dict[str, Any]) -> str:
    system = [{"role": "system", "content": content_text(body["system"])}] if body.get("system") else []
    return chat_prompt([*system, *body["messages"]])


def _stop_reason(request: Request) -> str | None:
    if request.answer.stop_reason is not None and request.finish_reason == "stop":
        return "stop_sequence"
    return _STOP_REASONS.get(request.finish_reason or "", request.finish_reason)


def _stop_sequence(request: Request) -> dict[str, str]:
    """The field of a whole message; it is there only when a stop text ended the answer."""
    hit = request.finish_reason == "stop" and request.answer.stop_reason is not None
    return {"stop_sequence": str(request.answer.stop_reason)} if hit else {}


def _usage(request: Request, produced: int) -> dict[str, int]:
    return {"input_tokens": request.prompt_tokens, "output_tokens": produced}
