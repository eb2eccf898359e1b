"""Plays random schedules against a planted fault until a law, or the state in the end, tells of it.

Run as a program it is a server: a fault a line in, what came of it a line out. Each fault is hunted in a fork of its
own that has imported nothing of the operator before; what is not ours is imported once, ahead of all of them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from planting import Fault, Misplanted, plant

_WHERE = re.compile(r"^at [\d.]+ s: ")
"""When it happened, which is of no interest in a table."""
NOT_OURS = ("kubernetes.aio.client", "aiohttp", "orjson", "prometheus_client", "pydantic")
LONGEST_S = 8
"""A schedule that takes more than so many CPU seconds does not end: virtual time has come to a stop."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one hunt."""

    seed: int | None
    """The first seed whose schedule told of the fault; None when none did."""
    law: str = ""
    """The first sentence that told of it."""
    cpu_s: float = 0.0


def hunt(fault: Fault | None, seeds: range) -> Finding:
    """The first finding. ``fault`` None plays what is there. Raises Misplanted; only for processes of its own."""
    if fault is not None:
        plant(fault)
    try:
        playing = importlib.import_module("aibrix_operator.sim.play")
    except Exception as error:  # what cannot start proves nothing about a rule
        name = "nothing planted" if fault is None else fault.name
        raise Misplanted(f"{name}: the operator does not start: {error!r}") from error
    if fault is not None and fault.module_name not in sys.modules:
        raise Misplanted(f"{fault.name}: {fault.module_name} was never imported")
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)  # ends the process, which is noticed
        try:
            violations = playing.play(seed).violations
        except Exception as error:  # what breaks the simulation itself
            violations = (f"the schedule ends in {error!r}",)
        if violations:
            return Finding(seed, violations[0], time.process_time())
    return Finding(None, "", time.process_time())


class Hunter:
    """The server, from the side of the tests."""

    def __init__(self) -> None:
        self._server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def hunt(self, fault: Fault | None, seeds: range) -> Finding:
        """As ``hunt``, in a fork. Raises Misplanted."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        question = {"fault": None if fault is None else dataclasses.asdict(fault), "seeds": [seeds.start, seeds.stop]}
        self._server.stdin.write(json.dumps(question).encode() + b"\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        if "misplanted" in answer:
            raise Misplanted(answer["misplanted"])
        return Finding(**answer)

    def close(self) -> None:
        assert self._server.stdin is not None
        with self._server:  # closes both pipes, and waits for its end
            self._server.stdin.close()


def expect_found(fault: Fault, hunter: Hunter, record_property) -> None:
    """Hunt the fault, note what came of it for the table at the end, and fail when no schedule told of it."""
    finding = hunter.hunt(fault, range(fault.first, fault.first + fault.seeds))
    found = "" if finding.seed is None else f"{finding.seed - fault.first + 1}/{fault.seeds}"
    record_property("planted", [fault.name, fault.module, found, _WHERE.sub("", finding.law)])
    assert finding.seed is not None, f"{fault.name}: {fault.seeds} schedules tell of nothing"


def _answer(question: dict) -> dict:
    fault = None if question["fault"] is None else Fault(**question["fault"])
    try:
        return dataclasses.asdict(hunt(fault, range(*question["seeds"])))
    except Misplanted as error:
        return {"misplanted": str(error)}


def _serve() -> None:
    for name in NOT_OURS:
        importlib.import_module(name)
    for line in sys.stdin.buffer:
        answers, answered = os.pipe()
        child = os.fork()
        if not child:
            os.write(answered, json.dumps(_answer(json.loads(line))).encode())
            os._exit(0)
        os.close(answered)
        with os.fdopen(answers, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        if not told:
            first = json.loads(line)["seeds"][0]
            told = json.dumps({"seed": first, "law": "the schedule does not end, or ends its process"}).encode()
        sys.stdout.buffer.write(told + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
