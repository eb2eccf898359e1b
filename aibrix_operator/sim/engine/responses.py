"""OpenAI's Responses route in vLLM's shape, whole answers only."""

from typing import Any

from aibrix_operator.sim.engine import errors
from aibrix_operator.sim.engine.http import HttpRequest, Response, json_response
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


class Responses:
    """The handler of ``/v1/responses``."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def create(self, http: HttpRequest) -> Response:
        body = errors.read_body(http, {"input": errors.TEXT_OR_LIST}, _OPTIONAL)
        model = self._serving.choose_model(body.get("model"))
        if body.get("stream"):
            raise errors.bad_parameter("the simulated engine gives whole responses only", "stream", True)
        messages = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        if body.get("instructions"):
            messages = [{"role": "system", "content": body["instructions"]}, *messages]
        request = self._serving.start(model, chat_prompt(messages), body, body.get("max_output_tokens"))
        await self._serving.finish(request)
        return json_response(_response(request, model, body))


def _response(request: Request, model: str, body: dict[str, Any]) -> dict[str, Any]:
    ended_itself = request.finish_reason == "stop"
    text: dict[str, Any] = {
        "annotations": [],
        "text": request.answer.text(0, request.produced),
        "type": "output_text",
        "logprobs": None,
    }
    message = {
        "id": new_id("msg_"),
        "content": [text],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "phase": None,
    }
    return {
        "id": new_id("resp_"),
        "created_at": now(),
        "incomplete_details": None if ended_itself else {"reason": "max_output_tokens"},
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata"),
        "model": model,
        "object": "response",
        "output": [message],
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
        "status": "completed" if ended_itself else "incomplete",
        "text": None,
        "top_logprobs": None,
        "truncation": "disabled",
        "usage": _usage(request),
        "user": body.get("user"),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def _usage(request: Request) -> dict[str, Any]:
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
