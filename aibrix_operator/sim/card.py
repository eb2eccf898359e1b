"""Simulated GPU memory, kept in files so that processes which know nothing of each other share a card.

Engines take memory here, the ``pynvml`` stand-in reads it back, tests and the sandbox create it. Standard library
only and no import of this package: an interpreter without our dependencies loads this file by its path.

Layout of a card directory (environment variable ``AIBRIX_SIM_CARDS``)::

    cards.json              list of {uuid, total_bytes, reserved_bytes}; the order is NVML's index order
    <uuid>/lock             flock: exclusive to change what is held, shared to read it
    <uuid>/<pid>-<start>    "footprint kv" in bytes, held by the process with that pid and start time
    nvml-broken             optional; what NVML refuses to tell, see the pynvml stand-in
    nvml-host-pids          optional; NVML shows other pids than the processes see, as across a PID namespace

Memory runs out as on a real card: a process that asks for more than its live neighbours leave gets
``CardOutOfMemory`` and keeps what it had. What a dead process held is free at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import uuid as uuid_numbers
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

CARDS_ENV = "AIBRIX_SIM_CARDS"
VISIBLE_ENV = "NVIDIA_VISIBLE_DEVICES"

_MIB = 1024**2
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = re.compile(r"(\d+)(|[KMGT]i?)")

# Kind -> (total, driver reservation) in bytes. The H20's usable memory is the 95.09 GiB that its published tables use.
PRESETS: dict[str, tuple[int, int]] = {
    "h20": (102_542_344_192, 440_234_148),
    "h20-141g": (143_771 * _MIB, 650 * _MIB),
    "h100-80g": (81_559 * _MIB, 551 * _MIB),
    "h200": (143_771 * _MIB, 650 * _MIB),
    "b300": (275_040 * _MIB, 1_264 * _MIB),
    "a100-40g": (40_960 * _MIB, 406 * _MIB),
    "a100-80g": (81_920 * _MIB, 535 * _MIB),
    "l40s": (46_068 * _MIB, 600 * _MIB),
    "l4": (23_034 * _MIB, 457 * _MIB),
}


class CardOutOfMemory(MemoryError):
    """The card has less free than a process asked for; the process holds what it held before."""

    def __init__(self, card: Card, wanted_bytes: int, free_bytes: int) -> None:
        super().__init__(f"{card.uuid}: {wanted_bytes} bytes more were asked for, {free_bytes} bytes are free")
        self.card = card
        self.wanted_bytes = wanted_bytes
        self.free_bytes = free_bytes


@dataclass(frozen=True)
class Card:
    """One simulated GPU; what processes may hold together is ``usable_bytes``."""

    uuid: str
    total_bytes: int
    reserved_bytes: int = 0

    @property
    def usable_bytes(self) -> int:
        return self.total_bytes - self.reserved_bytes


@dataclass(frozen=True)
class Holding:
    """What one live process holds on one card."""

    pid: int
    start_ticks: int
    footprint_bytes: int
    kv_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.footprint_bytes + self.kv_bytes


def parse_card(kind: str) -> Card:
    """A new card, with a UUID of its own, of a preset's name or of a usable size such as ``24Gi`` or ``25769803776``.

    Raises ValueError for anything else.
    """
    uuid = f"GPU-{uuid_numbers.uuid4()}"
    if kind.lower() in PRESETS:
        return Card(uuid, *PRESETS[kind.lower()])
    try:
        return Card(uuid, parse_size(kind))
    except ValueError:
        raise ValueError(f"card {kind!r} is neither a positive size nor one of {', '.join(PRESETS)}") from None


def parse_size(text: str) -> int:
    """Bytes of a positive whole number, with a Kubernetes suffix or none: ``24Gi``. Raises ValueError otherwise."""
    size = _SIZE.fullmatch(text)
    if size is None or int(size[1]) == 0:
        raise ValueError(f"{text!r} is not a positive size in bytes such as 24Gi")
    return int(size[1]) * _UNITS[size[2]]


def create(directory: str | Path, kinds: Sequence[str | Card]) -> tuple[Card, ...]:
    """Make ``directory`` a card directory with one empty card a kind, in that order.

    Cards that were there before are forgotten, with what was held on them.
    """
    root = Path(directory)
    cards = tuple(kind if isinstance(kind, Card) else parse_card(kind) for kind in kinds)
    for card in cards:
        (root / card.uuid).mkdir(parents=True, exist_ok=True)
        (root / card.uuid / "lock").touch()
    root.mkdir(parents=True, exist_ok=True)
    draft = root / f"cards.json.{os.getpid()}"
    draft.write_text(json.dumps([asdict(card) for card in cards], indent=1))
    draft.replace(root / "cards.json")
    return cards


def read_cards(directory: str | Path) -> tuple[Card, ...]:
    """All cards of the directory in index order. Raises OSError when it is none."""
    return tuple(Card(**entry) for entry in json.loads((Path(directory) / "cards.json").read_text()))


def visible_cards(directory: str | Path, *lists: str | None) -> tuple[Card, ...]:
    """The cards that a process sees through ``lists``: the value of ``NVIDIA_VISIBLE_DEVICES``, then of CUDA's.

    None and ``all`` hide nothing; anything else is a comma-separated list of UUIDs or of positions among the cards
    that the lists before it left.
    """
    cards = read_cards(directory)
    for visible in lists:
        if visible is not None and visible != "all":
            wanted = {name.strip() for name in visible.split(",")}
            cards = tuple(card for index, card in enumerate(cards) if card.uuid in wanted or str(index) in wanted)
    return cards


def hold(
    directory: str | Path,
    uuid: str,
    *,
    footprint_bytes: int | None = None,
    kv_bytes: int | None = None,
    pid: int | None = None,
) -> None:
    """Set what a process (by default the calling one) holds on a card; None leaves that part as it is.

    Shrinking always works. Growing raises CardOutOfMemory, and changes nothing, when all live processes together
    would hold more than the card's usable memory. Atomic among processes.
    """
    card = _find(directory, uuid)
    folder = Path(directory) / uuid
    owner = os.getpid() if pid is None else pid
    start_ticks = start_ticks_of(owner)
    if start_ticks is None:
        raise ProcessLookupError(f"no live process has pid {owner}")
    with _locked(folder, fcntl.LOCK_EX):
        held = _holdings(folder, forget_dead=True)
        mine = next((h for h in held if h.pid == owner), Holding(owner, start_ticks, 0, 0))
        footprint = mine.footprint_bytes if footprint_bytes is None else footprint_bytes
        kv = mine.kv_bytes if kv_bytes is None else kv_bytes
        grow = footprint + kv - mine.total_bytes
        free = card.usable_bytes - sum(h.total_bytes for h in held)
        if grow > 0 and grow > free:
            raise CardOutOfMemory(card, grow, free)
        own_file = folder / f"{owner}-{start_ticks}"
        if footprint + kv:
            own_file.write_text(f"{footprint} {kv}")
        else:
            own_file.unlink(missing_ok=True)


def release(directory: str | Path, uuid: str, *, pid: int | None = None) -> None:
    """Give back all that a process (by default the calling one) holds on a card."""
    hold(directory, uuid, footprint_bytes=0, kv_bytes=0, pid=pid)


def holdings(directory: str | Path, uuid: str) -> tuple[Holding, ...]:
    """What each live process holds on a card, by pid."""
    folder = Path(directory) / uuid
    with _locked(folder, fcntl.LOCK_SH):
        return _holdings(folder, forget_dead=False)


def used_bytes(directory: str | Path, uuid: str) -> int:
    """What all live processes hold on a card."""
    return sum(held.total_bytes for held in holdings(directory, uuid))


def free_bytes(directory: str | Path, uuid: str) -> int:
    """What the next process could get on a card."""
    return _find(directory, uuid).usable_bytes - used_bytes(directory, uuid)


def start_ticks_of(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone or dead and not yet reaped.

    With the pid it names one process for ever: the kernel gives a pid out again, not with the same start time.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command, in parentheses, may hold blanks and parentheses itself; the state follows the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZXx" else int(fields[19])


def _find(directory: str | Path, uuid: str) -> Card:
    for card in read_cards(directory):
        if card.uuid == uuid:
            return card
    raise KeyError(f"no card {uuid} in {directory}")


@contextlib.contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    with (folder / "lock").open("rb") as handle:
        fcntl.flock(handle, kind)
        yield


def _holdings(folder: Path, *, forget_dead: bool) -> tuple[Holding, ...]:
    """Read the folder under its lock; ``forget_dead`` (only under the exclusive lock) removes dead processes' files."""
    held = []
    for path in folder.iterdir():
        pid, _, start = path.name.partition("-")
        if not start:
            continue
        if start_ticks_of(int(pid)) != int(start):
            # Looked at before its content, which a process killed while it wrote may have left unfinished.
            if forget_dead:
                path.unlink(missing_ok=True)
            continue
        footprint, kv = path.read_text().split()
        held.append(Holding(int(pid), int(start), int(footprint), int(kv)))
    return tuple(sorted(held, key=lambda h: h.pid))
