"""Builders for the gateway's decision: questions, models and the view, of which a test names what matters to it."""

import json
from random import Random

import orjson

from aibrix_operator.gateway.decide import Settings, decide
from aibrix_operator.gateway.exchange import Question
from aibrix_operator.gateway.knobs import Knobs
from aibrix_operator.gateway.loads import Loads
from aibrix_operator.gateway.parsing.entry import parse
from aibrix_operator.gateway.profiles import parse_config
from aibrix_operator.gateway.request import Request
from aibrix_operator.gateway.strategies.book import StrategyBook
from aibrix_operator.gateway.verdict import Refuse
from aibrix_operator.gateway.view import Endpoint, Model, Standing, View, WakeTarget

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello"}]
BOUNDARY = "frontier"
LAST_BOUNDARY = f"--{BOUNDARY}--\r\n".encode()


def question(body=None, *, path=CHAT, method="POST", **headers):
    """``body``: bytes as they are, else JSON. Header names are written with _ for -."""
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return Question(method, path, {name.replace("_", "-"): value for name, value in headers.items()}, raw)


def chat(model="m", **members):
    """The body of a chat request."""
    return {"model": model, "messages": MESSAGES, **members}


def parsed(body=None, **given) -> Request | Refuse:
    """What ``parse`` says of such a question."""
    return parse(question(body, **given), "r-1", None)


def asked(model="m", *, path=CHAT, **headers) -> Request:
    """A chat request, or one of another path that takes the same body."""
    request = parsed(chat(model), path=path, **headers)
    assert isinstance(request, Request), request
    return request


def part(name, value, *, filename=None, extra=""):
    """One part of a multipart form."""
    file = f'; filename="{filename}"' if filename else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n{extra}\r\n'
    return head.encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"


def form(*parts, end=LAST_BOUNDARY):
    """The body of a multipart form."""
    return b"".join(parts) + end


def endpoint(number, *, model="m", port=8000, **labels):
    """Pod ``p<number>`` at ``10.0.x.x``."""
    address = f"10.0.{number // 250}.{number % 250 + 1}:{port}"
    return Endpoint(model, "default", f"p{number:04}", f"uid-{number}", address, labels=labels)


def model(name="m", pods=2, *, config=None, standing=None, engine="vllm", endpoints=None):
    """A model of ``pods`` Pods; ``config`` is the annotation's value."""
    made = tuple(endpoint(number, model=name) for number in range(pods)) if endpoints is None else tuple(endpoints)
    text = config if isinstance(config, str) or config is None else orjson.dumps(config).decode()
    read = parse_config(text, Knobs()) if text is not None else None
    return Model(name, made, engine, read, standing)


def profile(**members):
    """A config with one profile, ``default``."""
    return {"profiles": {"default": members}}


def sleeping(name="m", *, config=None, state="sleeping", reason="", retry_after_s=10, wake=True):
    """A claimed model without a routable engine."""
    target = WakeTarget("default", "warm", "uid-w", "7", name, name, already_asked=False) if wake else None
    return model(name, 0, config=config, standing=Standing(state, reason, retry_after_s, target))


def view(*models, counts=None, is_synced=True) -> View:
    """Of these models; ``counts``: Pod → requests that run there."""
    loads = Loads()
    for each in models:
        for one in each.endpoints:
            for _ in range((counts or {}).get(one.pod, 0)):
                loads.add(one)
    return View(loads, {each.name: each for each in models}, {}, is_synced=is_synced)


def decided(request, seen, *, default="least-request", seed=0, book=None):
    """The verdict."""
    return decide(request, seen, book or StrategyBook(), Settings(default or None), 1_000.0, Random(seed))
