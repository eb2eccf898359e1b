"""A real Envoy with our configuration, asking an exchange that answers as a test says."""

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from aibrix_operator.gateway import headers
from aibrix_operator.gateway.address import Address
from aibrix_operator.gateway.envoy import running
from aibrix_operator.gateway.envoy.process import ProcessOptions
from aibrix_operator.gateway.envoy.settings import EnvoySettings
from aibrix_operator.gateway.exchange import Answer, Forwarded, Question
from aibrix_operator.gateway.settlement import Ended, LogEntry, StillRunning
from aibrix_operator.sandbox.control_plane import free_port

_leases = (f"lease-{number}" for number in itertools.count())


def forward(address: str, *, lease: str = "", pod: str = "pod-0", upstream=(), client=()) -> Forwarded:
    """What an exchange answers for a request that goes to the engine at ``address``, under a lease of its own."""
    lease = lease or next(_leases)
    shared = [(headers.STRATEGY, "random"), (headers.WENT_THROUGH, "true")]
    return Forwarded(
        [(headers.TARGET, address), (headers.LEASE, lease), (headers.REQUEST_ID_UPSTREAM, "r-1"), *shared, *upstream],
        [(headers.TARGET, pod), (headers.TARGET_ADDRESS, address), (headers.REQUEST_ID, "r-1"), *shared, *client],
    )


@dataclass
class Canned:
    """An exchange. ``reply`` answers; questions and log entries are kept."""

    reply: Callable[[Question], Answer]
    questions: list[Question] = field(default_factory=list)
    entries: list[LogEntry] = field(default_factory=list)

    def answer(self, question):
        self.questions.append(question)
        return self.reply(question)

    def ended(self, lease: str | None = None) -> list[Ended]:
        """Requests that have ended, all or of one lease."""
        return [e for e in self.entries if isinstance(e, Ended) and lease in (None, e.lease)]

    def renewed(self, lease: str) -> int:
        return sum(isinstance(e, StillRunning) and e.lease == lease for e in self.entries)


@dataclass
class Stage:
    """What a test plays on."""

    gateway: running.Gateway
    exchange: Canned
    client: aiohttp.ClientSession
    url: str

    async def ended(self, lease: str) -> Ended:
        """How the request of ``lease`` ended, as the log tells."""
        await until(lambda: self.exchange.ended(lease))
        (entry,) = self.exchange.ended(lease)
        return entry


def settings_in(folder: Path, **changes) -> EnvoySettings:
    """All of our own servers on Unix sockets in ``folder``, and a free port for clients."""
    sockets = {name: Address(path=str(folder / name)) for name in ("admin", "questions", "reports", "api")}
    return EnvoySettings(listen=Address("127.0.0.1", free_port()), **{**sockets, **changes})


@contextlib.asynccontextmanager
async def stage(reply: Callable[[Question], Answer], **changes) -> AsyncIterator[Stage]:
    """Envoy, asking ``reply``. ``changes`` are settings other than the tests' own."""
    with tempfile.TemporaryDirectory(prefix="gw") as name:  # a short path: a Unix socket's is 107 bytes at most
        folder = Path(name)
        settings = settings_in(folder, **changes)
        exchange = Canned(reply)
        options = ProcessOptions(concurrency=1, log=folder / "envoy.log")
        try:
            async with (
                running.run(
                    settings, exchange, exchange.entries.append, config=folder / "envoy.json", options=options
                ) as gateway,
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
            ):
                yield Stage(gateway, exchange, client, f"http://{settings.listen}")
        finally:
            print((folder / "envoy.log").read_text()[-4000:])


async def until(holds: Callable[[], object], *, within_s: float = 20.0) -> None:
    """Poll with a deadline."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.005)
