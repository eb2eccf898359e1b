"""The engine container beside a sidecar, and a web server with an adapter, on one port of loopback."""

import http.server
import json
import threading


class EngineBeside:
    """Serves ``/v1/models``, vLLM's calls about adapters, and ``/files/adapter_config.json``."""

    def __init__(self):
        self.loaded = {}
        self.calls = []
        beside = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                """Nothing."""

            def _say(self, status, text):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text.encode())

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                if self.path == "/v1/models":
                    self._say(200, json.dumps({"object": "list", "data": [{"id": name} for name in beside.loaded]}))
                else:
                    self._say(*((200, '{"r": 8}') if self.path == "/files/adapter_config.json" else (404, "{}")))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                beside.calls.append((self.path, body))
                name = body["lora_name"]
                if self.path == "/v1/load_lora_adapter":
                    beside.loaded[name] = body["lora_path"]
                    self._say(200, "Success")
                else:
                    self._say(200 if beside.loaded.pop(name, None) else 404, "{}")

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
