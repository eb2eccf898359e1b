"""Tells at once when an engine's first process exits, without asking again and again.

A process file descriptor (pidfd_open(2)) turns readable when its process ends, whoever the parent is: engines that we
started and engines that the last sidecar left are watched alike. The event loop waits on the descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial

from aibrix_operator.runtime.launcher import Launcher
from aibrix_operator.runtime.records import EngineProcess

logger = logging.getLogger(__name__)


class DeathWatch:
    """Watches the processes it was last given. Used within one event loop."""

    def __init__(self, launcher: Launcher, exited: Callable[[], None]) -> None:
        """``exited`` is called once for each watched process that ends."""
        self._launcher = launcher
        self._exited = exited
        self._descriptors: dict[EngineProcess, int] = {}
        self._unwatched: frozenset[EngineProcess] = frozenset()

    @property
    def is_blind(self) -> bool:
        """Whether a running process could not be watched, so that its death shows only when somebody looks."""
        return bool(self._unwatched)

    def watch(self, processes: Iterable[EngineProcess]) -> None:
        """Watch these and no others. Those that have ended already are nobody's news."""
        wanted = frozenset(processes)
        for process in self._descriptors.keys() - wanted:
            self._close(process)
        self._unwatched = frozenset(
            process for process in wanted - self._descriptors.keys() if not self._has_opened(process)
        )

    def close(self) -> None:
        """Watch nothing any more."""
        self.watch(())

    def _has_opened(self, process: EngineProcess) -> bool:
        """Whether the process is watched now, or needs no watching because it has ended."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return True
        except OSError as error:
            # A kernel or a sandbox without the call, or no descriptor left: the caller has to look more often.
            if process not in self._unwatched:
                logger.warning("process %d cannot be watched, so it is looked at: %s", process.pid, error)
            return False
        # Only now does the start time prove whose descriptor this is: the number cannot change hands any more.
        if not self._launcher.is_running(process):
            os.close(descriptor)
            return True
        self._descriptors[process] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, partial(self._has_ended, process))
        return True

    def _has_ended(self, process: EngineProcess) -> None:
        self._close(process)
        self._exited()

    def _close(self, process: EngineProcess) -> None:
        descriptor = self._descriptors.pop(process)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
