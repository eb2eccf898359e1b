"""A sidecar in a few lines: ``/healthz``, and ``/start`` for an engine that is a process of its own session.

It stands for the runtime where only the sandbox is under test. Standard library only, so that it starts in no time.
"""

from __future__ import annotations

import json
import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# The engine starts a worker, as real ones do: it must end with the Pod too.
ENGINE = ["sh", "-c", "sleep 600 & wait"]


class Runtime(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/start":
            engine = subprocess.Popen(ENGINE, start_new_session=True)
            self.answer({"pid": engine.pid})
        elif self.path == "/environment":
            self.answer(dict(os.environ))
        else:
            self.answer({"status": "ok", "pid": os.getpid()})

    def answer(self, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name for it
        """Say nothing: probes come every second."""


if __name__ == "__main__":
    address = os.environ["AIBRIX_RUNTIME_HOST"], int(os.environ["AIBRIX_RUNTIME_PORT"])
    ThreadingHTTPServer(address, Runtime).serve_forever()
