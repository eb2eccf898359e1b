"""One Pod's sidecar process: started, found again, started anew when it dies.

It plays what the runtime image has: a loop that starts the runtime agent again one second after it ended, while the
engines, in sessions of their own, live on.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import aiohttp

from aibrix_operator.api import names
from aibrix_operator.sandbox import processes
from aibrix_operator.sandbox.pod_folder import FOLDER_ENV, PodFolder
from aibrix_operator.sandbox.processes import ProcessId
from aibrix_operator.sim import card

log = logging.getLogger(__name__)

_RESTART_AFTER_S = 1.0
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=1.0)
_PROBE_START_S = 0.1
_PROBE_PERIOD_S = 1.0
_PROBE_FAILURES = 3  # as a kubelet's default failureThreshold
_STANDINS = Path(card.__file__).with_name("standins")


def environment(folder: PodFolder, address: str, from_pod: Mapping[str, str]) -> dict[str, str]:
    """The sidecar's whole environment. ``from_pod`` is what the Pod's spec sets; where it lives is not its to say."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "PYTHONPATH")}
    # The stand-ins come first, so that they are found instead of a real vLLM or NVML that is installed here.
    path = [str(_STANDINS), *filter(None, [from_pod.get("PYTHONPATH"), os.environ.get("PYTHONPATH")])]
    return {
        **inherited,
        **from_pod,
        FOLDER_ENV: str(folder.path),
        "AIBRIX_RUNTIME_HOST": address,
        "AIBRIX_RUNTIME_PORT": str(names.RUNTIME_PORT),
        "AIBRIX_ENGINE_HOST": address,
        "AIBRIX_ENGINE_REGISTRY_PATH": str(folder.registry),
        "AIBRIX_KV_SEGMENT_DIR": str(folder.segments),
        "AIBRIX_WEIGHT_CACHE_DIR": str(folder.weights),
        card.CARDS_ENV: str(folder.cards),
        "ENABLE_KVCACHED": "false",
        "KVCACHED_AUTOPATCH": "0",
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
    }


class Sidecar:
    """Keeps one sidecar running while :meth:`run` runs; leaving that leaves the process running."""

    def __init__(
        self,
        folder: PodFolder,
        address: str,
        command: Sequence[str],
        from_pod: Mapping[str, str],
        session: aiohttp.ClientSession,
        on_change: Callable[[], None],
    ) -> None:
        """``on_change`` is called whenever :attr:`is_ready` has flipped."""
        self.is_ready = False
        self._folder = folder
        self._command = [part.replace("{address}", address) for part in command]
        self._environment = environment(folder, address, from_pod)
        self._url = f"http://{address}:{names.RUNTIME_PORT}/healthz"
        self._session = session
        self._on_change = on_change

    async def run(self) -> None:
        """Until cancelled. The first round takes over a process that an earlier agent started."""
        process = self._folder.sidecar
        if process is None or not processes.is_alive(process):
            process = self._start()
        while True:
            if process is not None:
                await self._watch(process)
                processes.reap(process.pid)
                log.info("%s: the sidecar (pid %d) ended", self._folder.path.name, process.pid)
            self._set_ready(False)
            await asyncio.sleep(_RESTART_AFTER_S)
            process = self._start()

    def _start(self) -> ProcessId | None:
        for path in (self._folder.registry.parent, self._folder.segments, self._folder.weights):
            path.mkdir(mode=0o700, exist_ok=True)
        try:
            pid = processes.start(
                self._command, log=self._folder.log, environment=self._environment, dies_with_parent=False
            )
        except OSError as error:  # no such program: tried again like any that ends, and said where the others speak
            with self._folder.log.open("a") as said:
                said.write(f"{error}\n")
            return None
        process = processes.identify(pid)
        if process is None:
            processes.reap(pid)
            return None
        self._folder.write_sidecar(process)
        return process

    async def _watch(self, process: ProcessId) -> None:
        """Probe until ``process`` has ended."""
        ended = asyncio.create_task(_ended(process))
        try:
            failures = 0
            while not ended.done():
                healthy = await self._probe()
                failures = 0 if healthy else failures + 1
                if healthy or failures >= _PROBE_FAILURES:
                    self._set_ready(healthy)
                await asyncio.wait([ended], timeout=_PROBE_PERIOD_S if self.is_ready else _PROBE_START_S)
        finally:
            ended.cancel()

    async def _probe(self) -> bool:
        try:
            async with self._session.get(self._url, timeout=_PROBE_TIMEOUT) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _set_ready(self, ready: bool) -> None:
        if self.is_ready != ready:
            self.is_ready = ready
            self._on_change()


async def _ended(process: ProcessId) -> None:
    """Return when ``process`` has ended. It need not be our child: an earlier agent may have started it."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    try:
        if processes.is_alive(process):
            loop.add_reader(handle, over.set)
            await over.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
