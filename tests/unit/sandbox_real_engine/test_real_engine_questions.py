"""The demo's HTTP calls against a server of the test's own."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aibrix_operator.sandbox.real_engine import questions


def completion(content: str = " a good model ", model: str = "tiny", tokens: int = 3) -> dict[str, Any]:
    return {
        "model": model,
        "choices": [{"message": {"role": "assistant", "content": content}}],
        "usage": {"completion_tokens": tokens},
    }


class Engine:
    """Answers every call with ``status`` and ``answer``, and remembers the last request."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = completion()
        self.asked: tuple[str, dict[str, Any]] | None = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked = (self.path, body)
                text = json.dumps(outer.answer).encode()
                self.send_response(outer.status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *words: Any) -> None:
                """Says nothing on the test's output."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there: a call through it would fail
    engine = Engine()
    thread = threading.Thread(target=engine.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield engine
    engine.server.shutdown()
    engine.server.server_close()
    thread.join(timeout=10)


def test_a_question_is_a_chat_completion_for_the_claims_model(engine: Engine) -> None:
    assert questions.ask("127.0.0.1", engine.port, "tiny", "Who?") == "a good model"
    assert engine.asked is not None
    path, body = engine.asked
    assert path == "/v1/chat/completions"
    assert body["model"] == "tiny"
    assert body["messages"] == [{"role": "user", "content": "Who?"}]


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        pytest.param(503, {"error": "loading"}, id="an error status"),
        pytest.param(200, {"object": "list"}, id="something else"),
        pytest.param(200, {"choices": []}, id="no choice"),
        pytest.param(200, completion(content="  "), id="no words"),
        pytest.param(200, completion(tokens=0), id="no tokens"),
        pytest.param(200, completion(model="other"), id="another model"),
        pytest.param(200, completion() | {"choices": [{"message": {"content": None}}]}, id="null content"),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(engine: Engine, status: int, answer: Any) -> None:
    engine.status, engine.answer = status, answer
    with pytest.raises(questions.NoAnswer):
        questions.ask("127.0.0.1", engine.port, "tiny", "Who?")


def test_a_closed_port_names_the_address() -> None:
    engine = Engine()
    engine.server.server_close()
    with pytest.raises(questions.NoAnswer, match=rf"http://127\.0\.0\.1:{engine.port}/v1/chat/completions: .*refused"):
        questions.ask("127.0.0.1", engine.port, "tiny", "Who?")
