"""OpenAI's routes in vLLM's shape: models, chat, completions, responses, tokenize."""

from collections.abc import AsyncIterator
from typing import Any

import orjson

from aibrix_operator.sim.engine import errors, tokens
from aibrix_operator.sim.engine.http import HttpRequest, Response, Stream, json_response
from aibrix_operator.sim.engine.scheduler import Request
from aibrix_operator.sim.engine.serving import FINGERPRINT, SAMPLING, Serving, chat_prompt, new_id, now

_DEFAULT_COMPLETION_TOKENS = 16
_CHAT = {**SAMPLING, "max_completion_tokens": errors.INTEGER}
_NOTHING = {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}

Json = dict[str, Any]


class OpenAI:
    """The handlers; each answers one route of ``routes``."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def models(self, _: HttpRequest) -> Response:
        arguments = self._serving.arguments
        base = [(name, arguments.model, None, self._serving.max_model_len) for name in arguments.served_names]
        adapters = [(name, path, arguments.name, None) for name, path in self._serving.loras.items()]
        return json_response({"object": "list", "data": [_model_card(*each) for each in [*base, *adapters]]})

    async def chat(self, http: HttpRequest) -> Response | Stream:
        body = errors.read_body(http, {"messages": errors.LIST}, _CHAT)
        model = self._serving.choose_model(body.get("model"), body.get("lora_path"))
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        request = self._serving.start(model, chat_prompt(body["messages"]), body, limit)
        if body.get("stream"):
            return self._serving.stream(request, self._chat_events(request, model, body.get("stream_options", {})))
        await self._serving.finish(request)
        message = {
            "role": "assistant",
            "content": request.answer.text(0, request.produced),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        choice = {"index": 0, "message": message, "logprobs": None, **_ending(request), "token_ids": None}
        return json_response(
            {
                "id": new_id("chatcmpl-"),
                "object": "chat.completion",
                "created": now(),
                "model": model,
                "choices": [{**choice, "routed_experts": None}],
                "service_tier": None,
                "system_fingerprint": FINGERPRINT,
                "usage": _usage(request),
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "prompt_text": None,
                **_NOTHING,
            }
        )

    async def completions(self, http: HttpRequest) -> Response | Stream:
        body = errors.read_body(http, {"prompt": errors.TEXT_OR_LIST}, SAMPLING)
        model = self._serving.choose_model(body.get("model"), body.get("lora_path"))
        limit = body.get("max_tokens", _DEFAULT_COMPLETION_TOKENS)
        request = self._serving.start(model, _prompt_text(body["prompt"]), body, limit)
        if body.get("stream"):
            return self._serving.stream(
                request, self._completion_events(request, model, body.get("stream_options", {}))
            )
        await self._serving.finish(request)
        choice = {
            "index": 0,
            "text": request.answer.text(0, request.produced),
            "logprobs": None,
            **_ending(request),
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }
        return json_response(
            {
                "id": new_id("cmpl-"),
                "object": "text_completion",
                "created": now(),
                "model": model,
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": FINGERPRINT,
                "usage": _usage(request),
                **_NOTHING,
            }
        )

    async def tokenize(self, http: HttpRequest) -> Response:
        optional = {"prompt": errors.STRING, "messages": errors.LIST, "return_token_strs": errors.BOOLEAN}
        body = errors.read_body(http, {}, {**optional, "model": errors.STRING})
        self._serving.choose_model(body.get("model"), body.get("lora_path"))
        if "messages" not in body and "prompt" not in body:
            raise errors.bad_request("either prompt or messages is required", "prompt")
        text = chat_prompt(body["messages"]) if "messages" in body else body["prompt"]
        split = tokens.split(text)
        return json_response(
            {
                "count": len(split),
                "max_model_len": self._serving.max_model_len,
                "tokens": [tokens.token_id(token) for token in split],
                "token_strs": split if body.get("return_token_strs") else None,
            }
        )

    async def _chat_events(self, request: Request, model: str, options: Json) -> AsyncIterator[bytes]:
        base = {"id": new_id("chatcmpl-"), "object": "chat.completion.chunk", "created": now(), "model": model}
        usage = _StreamUsage(request, options)
        first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        start: Json | None = {"prompt_token_ids": None, "prompt_text": None}
        async for positions, over in request.outputs():
            events = []
            if start is not None:
                events.append(_event({**base, "choices": [first], **usage.running(0), **start}))
                start = None
            # A sleep that cuts the answer ends it with an event that has no text.
            for at in positions or [request.produced]:
                last = over and at >= request.produced - 1
                text = request.answer.text(at, min(at + 1, request.produced))
                choice = {"index": 0, "delta": {"content": text}, "logprobs": None}
                ending = _ending(request) if last else {"finish_reason": None}
                chunk = {**base, "choices": [{**choice, **ending, "token_ids": None}], **usage.running(at + 1)}
                events.append(_event(chunk | usage.fingerprint(last)))
            yield b"".join(events)
        yield usage.closing(base)

    async def _completion_events(self, request: Request, model: str, options: Json) -> AsyncIterator[bytes]:
        base = {"id": new_id("cmpl-"), "object": "text_completion", "created": now(), "model": model}
        usage = _StreamUsage(request, options)
        async for positions, over in request.outputs():
            events = []
            for at in positions or [request.produced]:
                last = over and at >= request.produced - 1
                text = request.answer.text(at, min(at + 1, request.produced))
                choice = {"index": 0, "text": text, "logprobs": None, **_ending(request, last)}
                choice |= {"prompt_token_ids": None, "token_ids": None}
                chunk = {**base, "choices": [choice], **usage.running(at + 1)}
                events.append(_event(chunk | usage.fingerprint(last)))
            yield b"".join(events)
        yield usage.closing(base)


class _StreamUsage:
    """The usage figures of a stream, as its ``stream_options`` ask for them."""

    def __init__(self, request: Request, options: Json) -> None:
        self._request = request
        self._at_end = bool(options.get("include_usage"))
        self._continuous = self._at_end and bool(options.get("continuous_usage_stats"))

    def running(self, produced: int) -> Json:
        """The part of an event's chunk that tells the usage so far."""
        if not self._continuous:
            return {}
        return {
            "usage": _counts(self._request, min(produced, self._request.produced)) | {"completion_tokens_details": None}
        }

    def fingerprint(self, is_last: bool) -> Json:
        """It is part of the stream's last chunk, which is the usage chunk where there is one."""
        return {"system_fingerprint": FINGERPRINT} if is_last and not self._at_end else {}

    def closing(self, base: Json) -> bytes:
        done = b"data: [DONE]\n\n"
        if not self._at_end:
            return done
        usage = _counts(self._request, self._request.produced)
        return _event({**base, "choices": [], "usage": usage, "system_fingerprint": FINGERPRINT}) + done


def _event(chunk: Json) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _ending(request: Request, is_last: bool = True) -> Json:
    return {
        "finish_reason": request.finish_reason if is_last else None,
        "stop_reason": request.answer.stop_reason if is_last and request.finish_reason == "stop" else None,
    }


def _counts(request: Request, produced: int) -> Json:
    return {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + produced,
        "completion_tokens": produced,
    }


def _usage(request: Request) -> Json:
    details = {"prompt_tokens_details": None, "completion_tokens_details": None}
    return _counts(request, request.produced) | details


def _prompt_text(prompt: Any) -> str:
    """The one prompt of a completion: a text, a list of one text, or token numbers (each counts as a token)."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return str(prompt[0])
    if prompt and all(isinstance(token, int) for token in prompt):
        return "".join(f" {token % 100_000}" for token in prompt)
    raise errors.bad_request("the simulated engine takes one prompt a request", "prompt")


def _model_card(name: str, root: str, parent: str | None, max_model_len: int | None) -> Json:
    created = now()
    permission = {
        "id": new_id("modelperm-"),
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
