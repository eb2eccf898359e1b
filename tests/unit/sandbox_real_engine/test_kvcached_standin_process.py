"""The kvcached stand-in beside a real process that plays vLLM: hook, keeper, segment and card together."""

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aibrix_operator.sandbox.control_plane import free_port
from aibrix_operator.sandbox.real_engine import install
from aibrix_operator.sandbox.real_engine.kvcached_standin import hook
from aibrix_operator.sim import card

GIB = 1024**3

# An engine as the hook sees one: the module's name, a port, and a metrics page that the test writes. Its child has the
# engine's whole environment and another command line, as vLLM's workers have.
ENGINE = """\
import http.server, os, pathlib, subprocess, sys
here = pathlib.Path(os.environ["TEST_FOLDER"])

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (here / "page").read_bytes()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

subprocess.run([sys.executable, "-c", "import sys; print(sorted(n for n in sys.modules if 'aibrix' in n))"], check=True)
port = int(sys.argv[sys.argv.index("--port") + 1])
with http.server.ThreadingHTTPServer(("127.0.0.1", port), Page) as server:
    (here / "port").write_text(str(server.server_address[1]))
    server.serve_forever()
"""


@dataclass
class Stage:
    """A folder with one simulated card, and the engine that runs in it."""

    folder: Path
    card: card.Card
    engine: subprocess.Popen[str]

    def page(self, share: float, awake: int = 1) -> None:
        draft = self.folder / "page.part"
        draft.write_text(
            f'vllm:kv_cache_usage_perc{{engine="0"}} {share}\n'
            f'vllm:cache_config_info{{engine="0",kv_cache_memory_bytes="{GIB}"}} 1.0\n'
            f'vllm:engine_sleep_state{{engine="0",sleep_state="awake"}} {awake}\n'
        )
        draft.replace(self.folder / "page")

    @property
    def segment(self) -> tuple[int, int, int] | None:
        try:
            content = (self.folder / "kv" / "kvc_tiny").read_bytes()
        except FileNotFoundError:
            return None
        return struct.unpack("<qqq", content) if len(content) == 24 else None

    @property
    def held(self) -> list[tuple[int, int, int]]:
        return [
            (each.pid, each.footprint_bytes, each.kv_bytes)
            for each in card.holdings(self.folder / "cards", self.card.uuid)
        ]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"within 20 s: {what}"
        time.sleep(0.02)  # the pause between two looks at a real process


Start = Callable[..., Stage]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with the installer's .pth line and the engine above as its vLLM."""
    home = install.EngineHome(tmp_path_factory.mktemp("vllm"), "0.32.0")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home.root)], check=True, timeout=60)
    install.write_standin_hook(home)
    module = next(home.root.glob("lib/python3*")) / "site-packages" / "vllm" / "entrypoints" / "openai"
    module.mkdir(parents=True)
    (module / "api_server.py").write_text(ENGINE)
    return home.python


@pytest.fixture
def start(python: Path, tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "kv").mkdir()
    (tmp_path / "profiles.json").write_text('{"tiny": {"footprint_bytes": "2Gi", "asleep_footprint_bytes": "256Mi"}}')
    stages: list[Stage] = []

    def begin(size: str = "24Gi", **more: str) -> Stage:
        (only,) = card.create(tmp_path / "cards", [size])
        environ = {
            **os.environ,
            "AIBRIX_KVCACHED_STANDIN": hook.__file__,
            # As in a sandbox, whose simulated vLLM would be found first.
            "PYTHONPATH": str(Path(card.__file__).with_name("standins")),
            "TEST_FOLDER": str(tmp_path),
            "ENABLE_KVCACHED": "true",
            "KVCACHED_IPC_NAME": "kvc_tiny",
            "AIBRIX_KV_SEGMENT_DIR": str(tmp_path / "kv"),
            "AIBRIX_SIM_CARDS": str(tmp_path / "cards"),
            "AIBRIX_SIM_PROFILES": str(tmp_path / "profiles.json"),
            "http_proxy": "http://127.0.0.1:9",  # the engine is next door: no proxy may be asked
        } | more
        command = [str(python), "-m", hook.ENGINE_MODULE, "--model", "/m", "--served-model-name", "tiny"]
        with (tmp_path / "stderr").open("w") as errors:
            engine = subprocess.Popen(
                [*command, "--port", str(free_port())],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        stage = Stage(tmp_path, only, engine)
        stage.page(0.0)
        stages.append(stage)
        return stage

    yield begin
    for stage in stages:
        stage.engine.kill()
        stage.engine.wait(timeout=10)
        assert stage.engine.stdout is not None
        stage.engine.stdout.close()
        until(lambda stage=stage: stage.segment is None, "the keeper ends with its engine")


def test_the_segment_starts_at_what_the_card_can_hold_and_the_weights_are_booked(start: Start) -> None:
    stage = start()
    until(lambda: stage.segment == (24 * GIB, 0, 0), "a segment with the whole card as limit")
    assert stage.held == [(stage.engine.pid, 2 * GIB, 0)]


def test_use_follows_the_engines_own_pool_and_leaves_the_limit_alone(start: Start) -> None:
    stage = start()
    until(lambda: stage.segment, "a segment")
    with (stage.folder / "kv" / "kvc_tiny").open("r+b") as segment:
        segment.write(struct.pack("<q", 5 * GIB))

    stage.page(0.25)

    until(lambda: stage.segment == (5 * GIB, GIB // 4, 0), "the use in the segment")
    assert stage.held == [(stage.engine.pid, 2 * GIB, GIB // 4)]


def test_a_sleeping_engine_holds_its_sleeping_footprint_and_a_woken_one_its_whole(start: Start) -> None:
    stage = start()
    stage.page(0.0, awake=0)
    until(lambda: stage.held == [(stage.engine.pid, GIB // 4, 0)], "the footprint of sleep")
    stage.page(0.0, awake=1)
    until(lambda: stage.held == [(stage.engine.pid, 2 * GIB, 0)], "the footprint of an awake engine")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["told to end", "killed"])
def test_segment_and_memory_go_with_the_engine(start: Start, number: signal.Signals) -> None:
    stage = start()
    until(lambda: stage.segment, "a segment")

    os.killpg(stage.engine.pid, number)
    stage.engine.wait(timeout=10)

    until(lambda: stage.segment is None, "the segment is removed")
    assert stage.held == []


def test_an_engine_too_large_for_its_card_dies(start: Start) -> None:
    stage = start("1Gi")
    assert stage.engine.wait(timeout=20) == -signal.SIGKILL
    said = (stage.folder / "stderr").read_text()
    assert "simulated CUDA out of memory" in said
    assert f"{2 * GIB} bytes more were asked for, {GIB} bytes are free" in said


def test_use_beyond_the_card_kills_the_engine_that_grew(start: Start) -> None:
    stage = start("2560Mi")
    until(lambda: stage.segment, "a segment")
    stage.page(0.75)
    assert stage.engine.wait(timeout=20) == -signal.SIGKILL


def test_workers_of_an_engine_have_no_keeper_and_see_no_trace_of_one(start: Start) -> None:
    stage = start()
    assert stage.engine.stdout is not None
    # The child's hook ran, too (its mark is there), and started nothing: the card has one holder.
    assert stage.engine.stdout.readline() == "['aibrix_kvcached_standin.started']\n"
    until(lambda: stage.segment, "a segment")
    assert [pid for pid, _, _ in stage.held] == [stage.engine.pid]


def test_without_simulated_cards_there_is_a_segment_of_the_hosts_size(start: Start) -> None:
    stage = start(AIBRIX_SIM_CARDS="")
    until(lambda: stage.segment, "a segment")
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert stage.segment == (host, 0, 0)
    assert stage.held == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({"ENABLE_KVCACHED": "false", "PYTHONPATH": ""}, "", id="kvcached is off"),
        pytest.param({"KVCACHED_IPC_NAME": ""}, "", id="no segment is named"),
        pytest.param({"AIBRIX_SIM_PROFILES": "/no/such/file"}, "profiles /no/such/file", id="unreadable profiles"),
        pytest.param({"AIBRIX_SIM_CARDS": "/no/such/folder"}, "/no/such/folder/cards.json", id="unreadable cards"),
    ],
)
def test_the_engine_starts_all_the_same(start: Start, more: dict[str, str], said: str) -> None:
    stage = start(**more)
    until((stage.folder / "port").exists, "the engine serves")
    until(lambda: said in (stage.folder / "stderr").read_text(), "the keeper's complaint")
    assert stage.segment is None


ENGINE_WORDS = ["/v/bin/python", "-m", hook.ENGINE_MODULE, "--model", "/m", "--port", "20000"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(
            ENGINE_WORDS,
            ["/p", "-S", "-m", hook.KEEPER_MODULE, "77", "--model", "/m", "--port", "20000"],
            id="an API server",
        ),
        pytest.param(["/v/python", "-B", *ENGINE_WORDS[1:3]], ["/p", "-S", "-m", hook.KEEPER_MODULE, "77"], id="-B"),
        pytest.param(["/v/bin/python", "-c", "from multiprocessing.spawn import spawn_main"], None, id="a worker"),
        pytest.param(["/v/bin/python", "-m", "pip", "install"], None, id="another module"),
        pytest.param(["/v/bin/python", "-m"], None, id="no module"),
        pytest.param([], None, id="an embedded interpreter"),
    ],
)
def test_only_an_api_server_gets_a_keeper(command: list[str], expected: list[str] | None) -> None:
    environ = {"ENABLE_KVCACHED": "true", "KVCACHED_IPC_NAME": "kvc_tiny"}
    assert hook.keeper_command(command, environ, 77, "/p") == expected
