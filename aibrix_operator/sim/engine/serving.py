"""What the APIs of one engine share: its names, its adapters, and the way from a body to a running request."""

import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from aibrix_operator.sim.engine import errors, tokens
from aibrix_operator.sim.engine.arguments import Arguments
from aibrix_operator.sim.engine.http import Stream
from aibrix_operator.sim.engine.metrics import Metrics
from aibrix_operator.sim.engine.scheduler import Request, Scheduler

FINGERPRINT = "vllm-0.32.0-simulated"

SAMPLING: errors.Schema = {
    "model": errors.STRING,
    "max_tokens": errors.INTEGER,
    "min_tokens": errors.INTEGER,
    "ignore_eos": errors.BOOLEAN,
    "seed": errors.INTEGER,
    "stop": errors.TEXT_OR_LIST,
    "n": errors.INTEGER,
    "stream": errors.BOOLEAN,
    "stream_options": errors.OBJECT,
    "temperature": errors.NUMBER,
    "top_p": errors.NUMBER,
}


@dataclass(slots=True)
class Serving:
    """One engine as its routes see it."""

    arguments: Arguments
    max_model_len: int
    scheduler: Scheduler
    metrics: Metrics
    loras: dict[str, str]  # name -> path

    def choose_model(self, name: str | None, lora: Any = None) -> str:
        """The model that a request means, by default the base model. Raises ApiError for one that is not served.

        ``lora``: the request's ``lora_path``, which SGLang alone reads.
        """
        if self.arguments.kind == "sglang":
            return self._choose_of_sglang(name or self.arguments.name, lora if isinstance(lora, str) else "")
        if not name:
            return self.arguments.name
        if name not in self.arguments.served_names and name not in self.loras:
            raise self._unknown(name)
        return name

    def _choose_of_sglang(self, name: str, lora: str) -> str:
        """As SGLang reads it: ``base:adapter``, else ``lora_path``. The bare name of an adapter is as good as the base
        model's."""
        base, _, adapter = (name, "", "") if name in self.arguments.served_names else name.partition(":")
        adapter = adapter or lora
        if base not in self.arguments.served_names and base not in self.loras:
            raise self._unknown(name)
        if adapter and adapter not in self.loras:
            loaded = ", ".join(self.loras)
            raise errors.bad_request(f"LoRA adapter {adapter} is not loaded. Loaded adapters: {loaded}", "model")
        return adapter or self.arguments.name

    def _unknown(self, name: str) -> errors.ApiError:
        aliases = ", ".join(self.arguments.served_names)
        message = f"The model `{name}` does not exist. Valid aliases: {aliases}."
        return errors.ApiError(404, "NotFoundError", message, "model")

    def count_prompt(self, prompt: str) -> int:
        """The prompt's tokens. Raises ApiError when the context is too short for it and one token of an answer."""
        longest = self.max_model_len * tokens.MAX_TOKEN_CHARACTERS
        start = f"This model's maximum context length is {self.max_model_len} tokens. However, your prompt contains"
        end = "Please reduce the length of the input prompt."
        if len(prompt) > longest:
            bound = f"more than {longest} characters, which is the upper bound for {self.max_model_len} input tokens"
            message = f"{start} {len(prompt)} characters ({bound}). {end}"
            raise errors.bad_parameter(message, "input_text", len(prompt))
        count = len(tokens.split(prompt))
        if count >= self.max_model_len:
            raise errors.bad_parameter(f"{start} {count} input tokens. {end}", "input_tokens", count)
        return count

    def start(self, model: str, prompt: str, body: dict[str, Any], max_tokens: int | None) -> Request:
        """Check the sampling parameters and queue the request; ``max_tokens`` None is all that the context leaves."""
        if max_tokens is not None and max_tokens < 1:
            raise errors.bad_parameter(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens)
        if body.get("n", 1) != 1:
            raise errors.bad_parameter("the simulated engine gives one answer to a request", "n", body["n"])
        count = self.count_prompt(prompt)
        room = self.max_model_len - count
        if max_tokens is not None and max_tokens > room:
            message = (
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested"
                f" {max_tokens} output tokens and your prompt contains {count} input tokens, for a total of"
                f" {max_tokens + count} tokens. Please reduce the length of the input prompt or the number of"
                " requested output tokens."
            )
            raise errors.bad_parameter(message, "max_tokens", max_tokens)
        stop = body.get("stop", [])
        answer = tokens.answer(
            model,
            prompt,
            seed=body.get("seed"),
            max_tokens=max_tokens or room,
            min_tokens=body.get("min_tokens", 0),
            ignore_eos=body.get("ignore_eos", False),
            stop=[stop] if isinstance(stop, str) else [str(mark) for mark in stop],
        )
        lora = model if model in self.loras else None
        return self.scheduler.submit(count, max_tokens or room, answer, lora)

    async def finish(self, request: Request) -> None:
        """Wait for the whole answer; a caller that is cancelled takes its request along."""
        try:
            async for _ in request.outputs():
                pass
        finally:
            self.scheduler.abort(request)

    def stream(self, request: Request, chunks: AsyncIterator[bytes]) -> Stream:
        """The answer in chunks; a client that leaves takes its request along."""
        return Stream(chunks, lambda: self.scheduler.abort(request))


def new_id(prefix: str) -> str:
    return f"{prefix}{os.urandom(8).hex()}"


def now() -> int:
    return int(time.time())


def chat_prompt(messages: Sequence[Any]) -> str:
    """The prompt of a conversation. Raises ApiError for what no chat template takes."""
    if not messages:
        raise errors.bad_request("Cannot apply chat template to an empty conversation. Provide at least one message.")
    lines = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise errors.bad_request("every message must be an object with a role", "messages")
        lines.append(f"{message['role']}: {content_text(message.get('content'))}\n")
    return "".join(lines) + "assistant:"


def content_text(content: Any) -> str:
    """The text of a message's content: a text, or a list of text parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise errors.bad_request("content must be a text or a list of parts", "messages")
    texts = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, dict) else part
            raise errors.bad_request(f"a part of type {kind!r} needs a multimodal model; this one reads text only")
    return "\n".join(texts)
