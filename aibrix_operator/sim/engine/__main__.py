"""``python -m aibrix_operator.sim.engine vllm|sglang <the engine's flags>``: one simulated engine, from boot to exit.

Exit codes are a real engine's: 2 for a wrong command line, 1 for memory that ran out, 0 after SIGTERM.
"""

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from aibrix_operator.sim import card
from aibrix_operator.sim.engine import arguments, http, profile, routes, segment
from aibrix_operator.sim.engine.memory import Memory
from aibrix_operator.sim.engine.metrics import Metrics
from aibrix_operator.sim.engine.scheduler import Scheduler
from aibrix_operator.sim.engine.serving import Serving


def main() -> None:
    try:
        options = arguments.parse(sys.argv[1:])
        figures = profile.load(os.environ.get(profile.PROFILES_ENV), options.name, options.model)
    except (arguments.UsageError, profile.ProfileError) as error:
        _exit(2, f"error: {error}")
    figures = replace(
        figures,
        max_model_len=options.max_model_len or figures.max_model_len,
        max_running_requests=options.max_running_requests or figures.max_running_requests,
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options, figures))
    # Threads there are none, and nothing to save: leave before the interpreter takes its time to clean up.
    _exit(0, "engine stopped")


async def _run(options: arguments.Arguments, figures: profile.Profile) -> None:
    directory = os.environ.get(card.CARDS_ENV)
    cards, kv = _cards(directory, options.cards), segment.from_environment(os.environ)
    memory = Memory(figures, Path(directory) if directory else None, cards, kv)
    try:
        memory.boot()
        await asyncio.sleep(figures.boot_seconds)
        memory.open_pool()
    except (card.CardOutOfMemory, OSError) as error:
        _die(error)
    metrics = Metrics(options.name, figures.max_model_len, options.max_loras)
    scheduler = Scheduler(figures, memory, metrics, _die)
    serving = Serving(options, figures.max_model_len, scheduler, metrics, loras={})
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        hosts = http.listening_addresses(options.host, os.environ)
        server = await http.serve(routes.build(serving, os.environ, _die), hosts, options.port)
    except OSError as error:
        _exit(1, f"error: cannot listen on {options.host}:{options.port}: {error}")
    _say(f"serving {options.name} on http://{options.host}:{options.port}")
    await stop.wait()
    server.close()
    await asyncio.sleep(figures.stop_seconds)


def _cards(directory: str | None, wanted: int) -> tuple[card.Card, ...]:
    """The first ``wanted`` cards in sight; none at all where no card directory is given."""
    if not directory:
        return ()
    try:
        cards = card.visible_cards(directory, os.environ.get(card.VISIBLE_ENV), os.environ.get("CUDA_VISIBLE_DEVICES"))
    except OSError as error:
        _exit(1, f"RuntimeError: no NVIDIA driver: {error}")
    if len(cards) < wanted:
        _exit(1, f"ValueError: world size {wanted} is larger than the number of visible GPUs {len(cards)}")
    return cards[:wanted]


def _die(error: Exception) -> NoReturn:
    if isinstance(error, card.CardOutOfMemory):
        _exit(
            1,
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {_gib(error.wanted_bytes)} GiB."
            f" GPU {error.card.uuid} has a total capacity of {_gib(error.card.total_bytes)} GiB of which"
            f" {_gib(error.free_bytes)} GiB is free.",
        )
    _exit(1, f"{type(error).__name__}: {error}")


def _gib(size: int) -> str:
    return f"{size / 1024**3:.2f}"


def _say(line: str) -> None:
    sys.stderr.write(f"(simulated engine {os.getpid()}) {line}\n")
    sys.stderr.flush()


def _exit(code: int, line: str) -> NoReturn:
    """End the process at once, also from within a callback of the event loop."""
    _say(line)
    os._exit(code)


if __name__ == "__main__":
    main()
