"""A sidecar that answers its health check and nothing else as it should: ``bad_runtime.py ADDRESS FAULT``.

Calls that would change something are counted at ``/calls``, and answered like everything else.
"""

import json
import sys
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS, FAULT = sys.argv[1:]
GIB = 1 << 30
CARD = {"id": "GPU-bad", "hbm_total_bytes": 24 * GIB, "hbm_free_bytes": 24 * GIB, "hbm_usable_bytes": 24 * GIB}
calls = 0


def snapshot(**changes):
    empty = {"observed_at": datetime.now(UTC).isoformat(), "accelerators": [CARD], "models": [], "cached_artifacts": []}
    return json.dumps(empty | changes).encode()


def unsized():
    return {key: value for key, value in CARD.items() if key != "hbm_usable_bytes"}


# fault → status, body, bytes of it that are sent before the connection is cut (None: all)
ANSWERS = {
    "not-json": lambda: (200, b"<html>Bad Gateway</html>", None),
    "cut": lambda: (200, snapshot(), 40),
    "server-error": lambda: (503, b"upstream connect error", None),
    "too-long": lambda: (200, snapshot(cached_artifacts=["hf://" + "x" * (1 << 20)]), None),
    "no-cards": lambda: (200, snapshot(accelerators=[]), None),
    "unmeasured-card": lambda: (200, snapshot(accelerators=[CARD | {"hbm_usable_bytes": -1}]), None),
    "old-sidecar": lambda: (200, snapshot(accelerators=[unsized()]), None),
    "absurd-figure": lambda: (200, snapshot(accelerators=[CARD | {"hbm_usable_bytes": "24Gi"}]), None),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/healthz":
            self._answer(200, b'{"status":"ok"}')
        elif self.path == "/calls":
            self._answer(200, str(calls).encode())
        elif self.path == "/v1/runtime/snapshot":
            self._answer(*ANSWERS[FAULT]())
        else:
            self._answer(404, b'{"detail":"Not Found"}')

    def do_POST(self):
        global calls
        calls += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(*ANSWERS[FAULT]())

    def _answer(self, status, body, sent_bytes=None):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent_bytes])
        if sent_bytes is not None:
            self.close_connection = True

    def log_message(self, *_):
        """Says nothing: the log is for what goes wrong in a test."""


ThreadingHTTPServer((ADDRESS, 8080), Handler).serve_forever()
