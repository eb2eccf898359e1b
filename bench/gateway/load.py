"""One run of wrk against one address."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import orjson

PROMPTS = 64
"""Different bodies of one size; they share a system prompt of a quarter of it."""
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
_SCRIPT = """
local bodies, turn = {{}}, 0
for number = 0, {prompts} - 1 do
  local file = assert(io.open("{folder}/" .. number .. ".json", "rb"))
  bodies[number] = wrk.format("POST", "/v1/chat/completions", {{
    ["Host"] = "localhost", ["content-type"] = "application/json", ["authorization"] = "Bearer {key}",
    ["routing-strategy"] = {strategy}, ["user"] = {user} }}, file:read("*a"))
  file:close()
end
request = function() turn = (turn + 7) % {prompts}; return bodies[turn] end
done = function(summary)
  local errors = summary.errors
  io.write(string.format("ERRORS %d\\n", errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


class LoadError(Exception):
    """wrk is missing, or said something that is no result."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load."""

    name: str
    body_bytes: int
    connections: int
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk measured."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    requests: int
    errors: int


def bodies(folder: Path, cell: Cell) -> None:
    """Write the bodies of ``cell`` into ``folder``, the same for every contender."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(PROMPTS):
        body = {
            "messages": [{"role": "system", "content": "You are brief. "}, {"role": "user", "content": ""}],
            "model": "m",
            "max_tokens": 16,
            "stream": cell.stream,
        }
        if cell.stream:
            body["stream_options"] = {"include_usage": True}
        room = cell.body_bytes - len(orjson.dumps(body))
        system = ("You answer in one short sentence. " * (room // 4 // 34 + 1))[: room // 4]
        user = (f"Question {number}: what does card {number} hold? " * (room // 40 + 1))[: room - len(system)]
        body["messages"] = [
            {"role": "system", "content": "You are brief. " + system},
            {"role": "user", "content": user},
        ]
        (folder / f"{number}.json").write_bytes(orjson.dumps(body))


def run(
    url: str, cell: Cell, folder: Path, seconds: float, key: str, strategy: str | None = None, user: str | None = None
) -> Load:
    """Load ``url`` for ``seconds``. LoadError when wrk is missing or fails."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise LoadError("wrk is not installed; install the package of that name and run again")
    script = folder / "load.lua"

    def lua(text: str | None) -> str:
        return "nil" if text is None else f'"{text}"'

    script.write_text(_SCRIPT.format(prompts=PROMPTS, folder=folder, key=key, strategy=lua(strategy), user=lua(user)))
    command = [
        wrk,
        "-t1",
        f"-c{cell.connections}",
        f"-d{seconds:g}s",
        "--latency",
        "--timeout",
        "10s",
        "-s",
        str(script),
    ]
    said = subprocess.run([*command, url], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise LoadError(f"wrk ended with {said.returncode}: {said.stderr.strip() or said.stdout.strip()}")
    return _read(said.stdout)


def _read(said: str) -> Load:
    def figure(pattern: str) -> re.Match[str]:
        found = re.search(pattern, said)
        if found is None:
            raise LoadError(f"wrk said no {pattern!r}: {said}")
        return found

    def milliseconds(percentile: str) -> float:
        found = figure(rf"{percentile}%\s+([\d.]+)(us|ms|s|m)\b")
        return float(found[1]) * _UNITS_MS[found[2]]

    return Load(
        requests_per_s=float(figure(r"Requests/sec:\s+([\d.]+)")[1]),
        p50_ms=milliseconds("50"),
        p99_ms=milliseconds("99"),
        requests=int(figure(r"(\d+) requests in")[1]),
        errors=int(figure(r"ERRORS (\d+)")[1]),
    )
