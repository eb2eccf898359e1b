"""Where sandboxes lie on disk, and what makes several of them fit on one machine.

One folder a sandbox, below the user's state folder. Each owns one range ``127.<subnet>.0.0/16``, so that all their
Pods have addresses of their own. Folder and range are taken together, under a lock on the root.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from aibrix_operator.sandbox.fleet import NodeShape
from aibrix_operator.sandbox.process_table import ProcessTable

# 127.0.0.0/16 is everybody's; the low ones are popular with local resolvers.
SUBNETS = range(16, 255)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_SETTINGS = "sandbox.json"


class SandboxError(RuntimeError):
    """A sandbox cannot do what it was asked; the text says why and what to do. Shown to the user as it is."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox's folder and what was decided when it was made."""

    name: str
    directory: Path
    subnet: int
    nodes: tuple[NodeShape, ...]
    runtime_command: tuple[str, ...]
    """Starts a Pod's sidecar; ``{address}`` in it becomes the Pod's address."""

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def pods(self) -> Path:
        """One folder a Pod that runs here, named by its UID."""
        return self.directory / "pods"

    @property
    def table(self) -> ProcessTable:
        return ProcessTable(self.directory)

    def node_cidr(self, node: NodeShape) -> str:
        """The range of the node's Pods."""
        return f"127.{self.subnet}.{node.index}.0/24"

    def node_address(self, node: NodeShape) -> str:
        """The node's own address, outside of every range of Pods."""
        return f"127.{self.subnet}.255.{node.index}"


def state_root() -> Path:
    """The folder of all sandboxes: ``AIBRIX_STATE_DIR``, else below ``XDG_STATE_HOME``, else ``~/.local/state``."""
    own = os.environ.get("AIBRIX_STATE_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "aibrix-operator" / "sandboxes"


def create(name: str, nodes: Sequence[NodeShape], runtime_command: Sequence[str]) -> Sandbox:
    """Take the name and a free range. SandboxError when the name is no DNS label, is taken, or no range is free."""
    if not _NAME.fullmatch(name):
        raise SandboxError(f"{name!r} is no sandbox name: use up to 32 lower-case letters, digits and dashes")
    root = state_root()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with hold(root, wait=True):
        taken = {other.subnet for other in list_sandboxes()}
        free = [subnet for subnet in SUBNETS if subnet not in taken]
        if not free:
            raise SandboxError(f"all {len(SUBNETS)} address ranges are taken by sandboxes in {root}")
        # At random, because another user's sandboxes are not listed here.
        sandbox = Sandbox(name, root / name, random.choice(free), tuple(nodes), tuple(runtime_command))
        try:
            sandbox.directory.mkdir(mode=0o700)
        except FileExistsError:
            raise SandboxError(f"sandbox {name!r} exists already in {root}") from None
        settings = {
            "subnet": sandbox.subnet,
            "nodes": [asdict(node) for node in sandbox.nodes],
            "runtime_command": sandbox.runtime_command,
        }
        (sandbox.directory / _SETTINGS).write_text(json.dumps(settings, indent=1))
        sandbox.logs.mkdir()
        sandbox.pods.mkdir()
    return sandbox


def load(name: str) -> Sandbox | None:
    """The sandbox of that name, running or crashed; None when there is none."""
    return load_folder(state_root() / name)


def load_folder(directory: Path) -> Sandbox | None:
    """As :func:`load`, by folder."""
    try:
        settings = json.loads((directory / _SETTINGS).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    nodes = tuple(NodeShape(**node) for node in settings["nodes"])
    return Sandbox(directory.name, directory, settings["subnet"], nodes, tuple(settings["runtime_command"]))


def list_sandboxes() -> list[Sandbox]:
    """All sandboxes, by name."""
    root = state_root()
    found = [load_folder(path) for path in sorted(root.iterdir())] if root.is_dir() else []
    return [sandbox for sandbox in found if sandbox is not None]


def remove(sandbox: Sandbox) -> None:
    """Remove the folder; its name and range are free again. Its processes have ended before."""
    shutil.rmtree(sandbox.directory)


@contextlib.contextmanager
def hold(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Be the only one that changes what ``directory`` holds. The lock goes with the process, also when it is killed.

    Without ``wait`` a SandboxError when somebody else is at it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SandboxError(f"another command is at work on {directory.name!r}; try again when it is done") from None
    finally:
        os.close(descriptor)
