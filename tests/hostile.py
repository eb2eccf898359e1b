"""What must hold of every answer, whatever a client sends; and bodies and headers that nobody sends by accident."""

import json

import orjson
from gateway_asks import endpoint, model, profile, sleeping, view
from gateway_exchanges import Gateway, told, user

from aibrix_operator.gateway import wire
from aibrix_operator.gateway.exchange import Forwarded
from aibrix_operator.gateway.request import Api

NAMES = ("m", "org/m", "with blank", "模型", "x" * 80, "a\nb", '"', "🙂", "M")
EXPECTED = frozenset({400, 401, 405, 429, 501, 503})
"""Statuses of the gateway's own errors. A 500 is a fault of ours."""
PATHS = [*Api, "/v1/unknown", "/", "", "/v1/chat/completions?model=M", "/v1/chat/completions/../x", "/v1/%63hat", "//"]


def gateway():
    """A gateway whose models have names of all kinds, of which one sleeps."""
    models = [
        model(name, endpoints=[endpoint(10 * number, model=name, zone="a"), endpoint(10 * number + 1, model=name)])
        for number, name in enumerate(NAMES)
    ]
    capped = model("capped", 3, config=profile(requestsInflight=10**6, requestsPerSecond=10**6))
    return Gateway(view(*models, capped, sleeping("asleep"), model("bare", 0)), users=[user(rpm=10**9, tpm=10**15)])


def check(gateway, question, is_form=False):
    """The answer: an error in OpenAI's shape, or a forward to an engine of the model that a full parse gives."""
    answer = gateway.exchange.answer(question)
    wire.encode(answer)
    for name, value in told(answer).items():
        assert value.isascii()
        assert value.isprintable(), (name, value)
        assert len(value) <= 256, (name, value)
    if not isinstance(answer, Forwarded):
        assert answer.status in EXPECTED, answer
        assert set(orjson.loads(answer.body)["error"]) == {"message", "type", "code", "param"}
        assert told(answer)["content-type"] == "application/json"
        return None
    (lease,) = gateway.watching.leases
    gateway.watching.leases.clear()
    if not is_form:
        assert lease.request.model == json.loads(question.body)["model"]
    addresses = {each.address for each in gateway.view.models[lease.request.model].endpoints}
    target = dict(answer.upstream)["target-pod"]
    assert target in addresses
    gateway.leases.close(lease.id)
    return lease.request.model


_WORDS = ["model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "query", "documents"]
_KEYS = [*_WORDS, "model", "messages", "Model", "model ", "", "temperature"]
_MODELS = [
    json.dumps(name, ensure_ascii=is_escaped)
    for name in (*NAMES, "asleep", "bare", "", "nobody")
    for is_escaped in (0, 1)
]
_ODD = [
    "null", "true", "false", "0", "-1", "1e400", "NaN", "-Infinity", "9007199254740993", "1" * 40, '""', "[]", "{}",
    '"\\ud800"', '"\\u0000"', "[[]]", '[{"content":"x"}]', '[{"content":[{"type":"text","text":"é"}]}]', '["a"]',
    '{"include_usage":true}', "[1,2,3]", "[" * 300 + "]" * 300, "[" * 2000 + "]" * 2000, "tru", '"unclosed', "",
]  # fmt: skip
_GOOD = ['"model":"m"', '"messages":[{"role":"user","content":"hi"}]']


def any_object(random, most=6):
    """A JSON object, or nearly: keys in any order, repeated and escaped; values that belong to them or to others."""
    return "{" + ",".join(_pair(random) for _ in range(random.randint(0, most))) + "}"


def tampered(random):
    """A good body with pairs before and after it, and in most cases some bytes changed, cut, doubled or missing."""
    around = [any_object(random, 2)[1:-1] if random.random() < 0.5 else "" for _ in range(2)]
    raw = bytearray(("{" + ",".join(filter(None, (around[0], *_GOOD, around[1]))) + "}").encode())
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        at = random.randrange(len(raw))
        match random.randrange(4):
            case 0:
                raw[at] = random.choice((random.randrange(256), *b'"{}[]:,\\'))
            case 1 if len(raw) > 8:
                del raw[at : at + random.randint(1, 8)]
            case 2:
                raw[at:at] = raw[at : at + 8]
            case 3 if random.random() < 0.2:
                del raw[max(at, 1) :]
    return bytes(raw)


def _pair(random):
    key = random.choice(_KEYS)
    written = json.dumps(key)
    if random.random() < 0.3:
        written = '"' + "".join(f"\\u{ord(c):04x}" if random.random() < 0.5 else c for c in key) + '"'
    values = _MODELS if (key == "model") is not (random.random() < 0.2) else _ODD
    if key == "messages" and random.random() < 0.6:
        values = ['[{"content":"x"}]']
    return f"{written}:{random.choice(values)}"
