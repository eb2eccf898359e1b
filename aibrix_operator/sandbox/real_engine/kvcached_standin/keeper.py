"""Keeps a real engine's KV segment and its share of a simulated card for as long as the engine lives.

Started by ``hook.py`` as ``python -S -m … <engine pid> <the engine's flags>``. It plays two parts that a CPU lacks:
kvcached, which publishes the segment that a runtime reads and writes its limit to, and the driver, which knows what the
process holds. Weights cost what the profile of the simulated engines says (``AIBRIX_SIM_PROFILES``), KV costs what the
engine's own pool really uses. A real pool has a fixed size, so a lower limit evicts nothing here and stops nothing.
"""

from __future__ import annotations

import http.client
import os
import select
import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aibrix_operator.sandbox.real_engine.kvcached_standin import engine_metrics
from aibrix_operator.sim import card
from aibrix_operator.sim.engine import arguments, profile, segment

LOOK_EVERY_S = 0.5
WILDCARD_HOSTS = ("0.0.0.0", "::", "")
_ANSWER_WITHIN_S = 2.0
# Without the proxies that the environment may name: the engine is on this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class EngineGone(Exception):
    """The engine ended before its keeper had begun."""


@dataclass(frozen=True, slots=True)
class Share:
    """The engine's share of its cards. Growing raises ``card.CardOutOfMemory``."""

    directory: Path | None
    cards: Sequence[card.Card]
    pid: int

    @property
    def usable_bytes(self) -> int:
        """The least of its cards; the host's memory for an engine without cards, which is what it lives in."""
        host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min((each.usable_bytes for each in self.cards), default=host)

    def hold(self, *, footprint_bytes: int, kv_bytes: int) -> None:
        """Book both for the engine's own pid. A process that has just ended holds nothing and is no error."""
        for each in self.cards:
            assert self.directory is not None, "cards come from a directory"
            try:
                card.hold(self.directory, each.uuid, footprint_bytes=footprint_bytes, kv_bytes=kv_bytes, pid=self.pid)
            except ProcessLookupError:
                return


class Engine:
    """The process that is kept. ``descriptor`` is its pidfd, opened while it is known to be the right one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise EngineGone(f"no process {pid}") from None
        self._ended = select.poll()
        self._ended.register(self._descriptor, select.POLLIN)

    def ends_within(self, seconds: float) -> bool:
        return bool(self._ended.poll(seconds * 1000))

    def kill(self) -> None:
        """End it as an allocation failure would: at once, with its workers when it leads their group."""
        if self.ends_within(0):
            return
        if os.getpgid(self.pid) == self.pid:
            os.killpg(self.pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Keeper:
    """All that one engine's keeper needs."""

    engine: Engine
    share: Share
    figures: profile.Profile
    segment_file: segment.Segment
    metrics_url: str

    def run(self) -> None:
        """Keep the books until the engine has ended. Raises ``card.CardOutOfMemory`` when its card is full."""
        self.share.hold(footprint_bytes=self.figures.footprint_bytes, kv_bytes=0)
        limit = self.share.usable_bytes if self.figures.kv_pool_bytes is None else self.figures.kv_pool_bytes
        self.segment_file.rebuild(limit)
        last: engine_metrics.Reading | None = None
        while not self.engine.ends_within(LOOK_EVERY_S):
            seen = look(self.metrics_url)
            if seen is not None and seen != last and self._book(seen):
                last = seen

    def _book(self, seen: engine_metrics.Reading) -> bool:
        """Put one reading into the books; False while somebody else holds the segment's lock."""
        weights = self.figures.asleep_footprint_bytes if seen.is_asleep else self.figures.footprint_bytes
        self.share.hold(footprint_bytes=weights, kv_bytes=seen.kv_used_bytes)
        try:
            with self.segment_file.locked():
                self.segment_file.write(seen.kv_used_bytes, prealloc_bytes=0)
        except segment.Busy:
            return False
        return True


def look(url: str) -> engine_metrics.Reading | None:
    """What the engine's metrics page says now; None while it boots, hangs, or lacks the figures."""
    try:
        with _OPENER.open(url, timeout=_ANSWER_WITHIN_S) as answer:
            page: bytes = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    return engine_metrics.parse(page.decode(errors="replace"))


def find_cards(environ: Mapping[str, str], count: int) -> tuple[Path | None, tuple[card.Card, ...]]:
    """The card directory and the first ``count`` cards that the engine sees; no cards where none are simulated."""
    directory = environ.get(card.CARDS_ENV)
    if not directory:
        return None, ()
    return Path(directory), card.visible_cards(directory, environ.get(card.VISIBLE_ENV))[:count]


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Keep the engine ``words[0]`` that was started with the flags ``words[1:]``; the exit status of the process."""
    try:
        engine = Engine(int(words[0]))
        flags = arguments.parse(["vllm", *words[1:]])
        figures = profile.load(environ.get(profile.PROFILES_ENV), flags.name, flags.model)
        directory, cards = find_cards(environ, flags.cards)
    except (EngineGone, arguments.UsageError, profile.ProfileError, OSError, ValueError) as error:
        print(f"kvcached stand-in: {error}; the engine runs without a segment", file=sys.stderr)
        return 1
    # Ends with the engine and not before it, so that the books of an engine that takes its time to stop stay right.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    name = environ[segment.NAME_ENV]
    path = Path(environ.get(segment.DIRECTORY_ENV) or "/dev/shm") / name
    keeper = Keeper(
        engine,
        Share(directory, cards, engine.pid),
        figures,
        segment.Segment(path),
        f"http://{'127.0.0.1' if flags.host in WILDCARD_HOSTS else flags.host}:{flags.port}/metrics",
    )
    try:
        keeper.run()
    except card.CardOutOfMemory as error:
        print(f"kvcached stand-in: simulated CUDA out of memory: {error}; the engine ends", file=sys.stderr)
        engine.kill()
        return 1
    finally:
        path.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
