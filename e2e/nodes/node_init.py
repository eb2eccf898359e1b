"""Process 1 of a local node: prepares its namespaces, starts containerd, kubelet and kube-proxy, and collects the dead.

``node.py`` starts it in process, mount and network namespaces of its own. When it is killed, the kernel kills whatever
runs in the node, and drops the mounts and network devices with the namespaces: no kill of a test run leaves a thing.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_BIND = 0x1000
_WITHIN_S = 20.0
_POLL_S = 0.01
# What a kubelet wants of the kernel, for the whole machine. It finds these answers, and changes nobody's kernel.
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def main(settings_file: str) -> None:
    settings = json.loads(Path(settings_file).read_text())
    folder = Path(settings["folder"])
    # As a container's: whatever node programs write below /var and /run is the node's own.
    _mount(str(folder / "var"), "/var", None, _MS_BIND)
    _mount("tmpfs", "/run", "tmpfs", 0)
    # Images: thousands of files that the kernel forgets at once, where removing them from a disk takes a minute.
    _mount("tmpfs", "/var/lib/containerd", "tmpfs", 0)
    _answer_tunables(folder / "tunables")
    _wait(lambda: "eth0" in {name for _, name in socket.if_nameindex()}, "eth0")
    for command in settings["network"]:
        subprocess.run(command, check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    containerd, *others = settings["programs"]
    _start(containerd, folder)
    _wait(Path(settings["socket"]).exists, "containerd's socket")
    for program in others:
        _start(program, folder)
    while True:
        os.wait()


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    arguments = (source.encode(), target.encode(), kind.encode() if kind else None, flags, None)
    if _LIBC.mount(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}: {os.strerror(ctypes.get_errno())}")


def _answer_tunables(folder: Path) -> None:
    folder.mkdir()
    for name, value in _TUNABLES.items():
        target = Path("/proc/sys") / name
        if target.exists():
            file = folder / name.replace("/", "-")
            file.write_text(f"{value}\n")
            _mount(str(file), str(target), None, _MS_BIND)


def _start(command: list[str], folder: Path) -> None:
    """In the order given; one that ends is not started again, and its log says why it ended."""
    with (folder / f"{Path(command[0]).name}.log").open("ab") as log:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/")


def _wait(condition, what: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"no {what} within {_WITHIN_S:.0f} s")
        time.sleep(_POLL_S)  # neither offers an event without another library


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the node is switched off, not shut down
    main(sys.argv[1])
