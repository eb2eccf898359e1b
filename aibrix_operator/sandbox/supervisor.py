"""Keep one command running: ``python -m aibrix_operator.sandbox.supervisor COMMAND…``.

It plays the Deployment of a process that would have one: what ends, for whatever reason, is started again after a
second. SIGTERM ends the command and then this process; when this process is killed, the kernel kills the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence

from aibrix_operator.sandbox import processes

log = logging.getLogger(__name__)

_RESTART_AFTER_S = 1.0
STOP_WITHIN_S = 10.0  # the operator finishes the steps under way first


async def supervise(command: Sequence[str]) -> None:
    """Until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stop = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        child = await asyncio.create_subprocess_exec(*command, preexec_fn=processes.kill_with_parent())
        ended = asyncio.create_task(child.wait())
        await asyncio.wait([ended, stop], return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            log.warning("%s ended with status %s; starting it again", command[-1], child.returncode)
            await asyncio.wait([stop], timeout=_RESTART_AFTER_S)
            continue
        with contextlib.suppress(ProcessLookupError):  # it ended by itself a moment ago
            child.terminate()
        await asyncio.wait([ended], timeout=STOP_WITHIN_S)
        if not ended.done():
            child.kill()
            await ended


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(supervise(sys.argv[1:]))


if __name__ == "__main__":
    main()
