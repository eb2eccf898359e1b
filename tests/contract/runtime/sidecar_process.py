"""A runtime sidecar as a process of its own, ours or upstream's, with simulated engines behind it."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from engine_beside import EngineBeside

import aibrix_operator.sim
from aibrix_operator.sandbox.control_plane import free_port
from aibrix_operator.sim import card

STANDINS = Path(aibrix_operator.sim.__file__).parent / "standins"
ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 30.0
POLL_S = 0.02
GIB = 1 << 30
AWAKE_BYTES, ASLEEP_BYTES = 2 * GIB, 314_572_800

SERVED = {
    "claim_ref": {"namespace": "default", "name": "a", "uid": "7f0c"},
    "engine_config": {"args": {"--max-model-len": "2048", "--enable-prefix-caching": ""}},
    "additional_config": {"engine-arg:--max-num-seqs": "8", "else": "x"},
}
"""What the model that tests share is activated with."""

OURS = (
    "from aibrix_operator.runtime.app import serve; "
    "from aibrix_operator.runtime.settings import RuntimeSettings; "
    "serve(RuntimeSettings())"
)


def upstream_python():
    return Path(os.environ.get("AIBRIX_UPSTREAM_PYTHON") or ROOT / ".cache/upstream/bin/python")


def until(condition, what):
    """Wait until ``condition`` holds, polling real processes."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(POLL_S)
    return value


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: dict

    @property
    def body(self):
        return json.loads(self.text)


class Sidecar:
    """One sidecar over one simulated card."""

    def __init__(self, kind, directory):
        self.kind = kind
        self.directory = directory
        self.cards = directory / "cards"
        self.card = card.create(self.cards, ["100Gi"])[0]
        self.registry = directory / "run" / "engines.json"
        self.weight_cache = directory / "cache"
        self.segments = directory / "shm" if kind == "ours" else Path("/dev/shm")
        self.segments.mkdir(exist_ok=True)
        self.port = free_port()
        # A range of this test run's own. Ours picks from it; upstream always picks from the machine's 20000–20999, so
        # it is told a port wherever its own pick is not what a test is about.
        block = 21_000 + 100 * (os.getpid() % 100)
        self.ports = range(block, block + 50) if kind == "ours" else range(20_000, 21_000)
        self._told_ports = iter(range(block + 50, block + 100))
        self.log = directory / "sidecar.log"
        self.engine = EngineBeside()
        self.models = []
        (directory / "profiles.json").write_text(
            json.dumps(
                {
                    "default": {
                        "boot_seconds": 0.3,
                        "footprint_bytes": AWAKE_BYTES,
                        "asleep_footprint_bytes": ASLEEP_BYTES,
                        "kv_pool_bytes": 4 * GIB,
                    }
                }
            )
        )
        self._process = None

    def own_name(self, text):
        """A model name that no other test run has: upstream's segments are the whole machine's."""
        return f"{text}.{self.kind}-{os.getpid()}"

    def start(self):
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("AIBRIX_", "KVCACHED_"))},
            "PYTHONPATH": str(STANDINS),
            "AIBRIX_SIM_PYTHON": sys.executable,
            "AIBRIX_SIM_CARDS": str(self.cards),
            "AIBRIX_SIM_PROFILES": str(self.directory / "profiles.json"),
            "AIBRIX_KV_SEGMENT_DIR": str(self.segments),
            "AIBRIX_ENGINE_REGISTRY_PATH": str(self.registry),
            "AIBRIX_WEIGHT_CACHE_DIR": str(self.weight_cache),
            "ENABLE_KVCACHED": "false",
            "INFERENCE_ENGINE_ENDPOINT": self.engine.url,
            "AIBRIX_ADAPTER_DIR": str(self.directory / "adapters"),
        }
        if self.kind == "ours":
            environment |= {
                "AIBRIX_RUNTIME_HOST": "127.0.0.1",
                "AIBRIX_RUNTIME_PORT": str(self.port),
                "AIBRIX_ENGINE_HOST": "127.0.0.1",
                "AIBRIX_ENGINE_PORT_FIRST": str(self.ports[0]),
                "AIBRIX_ENGINE_PORT_LAST": str(self.ports[-1]),
            }
            command = [sys.executable, "-c", OURS]
        else:
            command = [upstream_python(), "-m", "aibrix.app", "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        until(self._answers, f"the sidecar answers; its log: {self.log.read_text()}")

    def _answers(self):
        assert self._process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):
            return self.get("/healthz").status == 200
        return False

    def kill(self):
        self._process.kill()
        self._process.wait()

    def end(self):
        """End the sidecar, its engines, and what upstream leaves in the machine's shared memory."""
        self.engine.stop()
        if self._process is not None:
            self.kill()
        for record in self.records():
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.killpg(record["pid"], signal.SIGKILL)
        for model in self.models:
            (self.segments / ipc_name(model)).unlink(missing_ok=True)

    def records(self):
        if not self.registry.exists():
            return []
        return json.loads(self.registry.read_text())["engines"]

    def record(self, model):
        return next(record for record in self.records() if record["model_name"] == model)

    def call(self, method, path, body=None, raw=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            content = raw if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            headers = {key.lower(): value for key, value in answer.getheaders()}
            return Answer(answer.status, answer.read().decode(), headers)
        finally:
            connection.close()

    def get(self, path):
        return self.call("GET", path)

    def post(self, action, **body):
        return self.call("POST", f"/v1/runtime/models/{action}", body)

    def activate(self, model, **more):
        """Ask for an engine; ``port=0`` has the sidecar pick one in any case."""
        self.models.append(model)
        request = {"model_name": model, "artifact_url": f"hf://org/{model}"} | more
        if self.kind == "upstream" and "port" not in request:
            request["port"] = next(self._told_ports)
        return self.post("activate", **request)

    def snapshot(self):
        answer = self.get("/v1/runtime/snapshot")
        assert answer.status == 200
        return answer.body

    def state(self, model):
        return next((state for state in self.snapshot()["models"] if state["model_name"] == model), None)

    def serve(self, model, **more):
        """Activate and wait until the supervisor has seen it ready."""
        answer = self.activate(model, **more)
        assert answer.status == 200, answer.text
        until(lambda: self.is_in(model, "active"), f"{model} is active")
        return answer.body

    def is_in(self, model, phase):
        state = self.state(model)
        return state is not None and state["phase"] == phase

    def stop(self, model):
        assert self.post("deactivate", model_name=model).status == 200
        until(lambda: self.state(model) is None, f"{model} is gone")

    def metrics(self):
        """Sample (name and labels as written) → value."""
        page = self.get("/metrics/").text
        return {key: float(value) for key, value in re.findall(r"^(aibrix:modelclaim_\S+) (\S+)$", page, re.MULTILINE)}


def ipc_name(model):
    return "kvc_" + re.sub(r"[^A-Za-z0-9_-]", "-", model)
