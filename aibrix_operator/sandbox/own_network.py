"""A network of this thread's own, in which every address of a range is here: EndpointSlices refuse loopback addresses.

Needs root. The kernel gives a network to a thread, and what it starts inherits it, so tests, control plane and operator
meet there while the rest of the process stays where it was.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator

RANGE = "10.77.0.0/16"
_CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """Why there can be none; empty: there can."""
    if os.geteuid() != 0:
        return "a network namespace of its own needs root"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    return ""


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """The calling thread is elsewhere meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace")
        try:
            for command in ("link set lo up", f"route add local {RANGE} dev lo"):
                subprocess.run(["ip", *command.split()], check=True)
            yield
        finally:
            if libc.setns(home, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "the thread cannot go home")
    finally:
        os.close(home)
