"""The message by which a replica tells the others what changed, and what a listener concludes from its number. Pure.

A message is a version byte, the length of a JSON header (4 bytes, big-endian), the header, and after it ids and values
one after another, as long as the header says. A field that a version does not know is ignored.

Each replica numbers its messages of a namespace from 1. After each push it sends a *beat*, which has no number of its
own and names the last message before the push: what was told until then is in Redis, and who has missed any of it pulls
everything. A replica that does not even hear its own beat listens to a dead connection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

VERSION = 1
HEAD = struct.Struct(">BI")


class BadMessage(ValueError):
    """Bytes on the channel that are no message of a version that we know."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one replica says about one namespace."""

    sender: str
    number: int
    """Of this message; of the last one before the push when this is a beat."""
    entities: Mapping[str, bytes] = field(default_factory=dict)
    """Values and tombstones by id."""
    beat: int = 0
    """The sender's cycle that ended just now; 0: no beat."""
    refreshed: frozenset[int] = frozenset()
    """Slices that the sender has just written anew."""


def encode(message: Message) -> bytes:
    """The bytes that are published."""
    ids = [entity.encode(errors="surrogateescape") for entity in message.entities]
    values = list(message.entities.values())
    header = orjson.dumps(
        {
            "from": message.sender,
            "n": message.number,
            "beat": message.beat,
            "refreshed": sorted(message.refreshed),
            "ids": [len(i) for i in ids],
            "values": [len(v) for v in values],
        }
    )
    return b"".join((HEAD.pack(VERSION, len(header)), header, *ids, *values))


def decode(payload: bytes) -> Message:
    """Raises ``BadMessage`` for anything that ``encode`` of our version, or a later one like it, did not make."""
    try:
        version, length = HEAD.unpack_from(payload)
        if version != VERSION:
            raise BadMessage(f"a message of version {version}, and this replica knows {VERSION}")
        at = HEAD.size + length
        header = orjson.loads(payload[HEAD.size : at])
        lengths: list[int] = [*header["ids"], *header["values"]]
        if min(lengths, default=0) < 0 or at + sum(lengths) != len(payload):
            raise BadMessage(f"{len(payload)} bytes, and its header tells of {at + sum(lengths)}")
        parts = []
        for size in lengths:
            parts.append(payload[at : at + size])
            at += size
        half = len(header["ids"])
        ids = (part.decode(errors="surrogateescape") for part in parts[:half])
        return Message(
            sender=str(header["from"]),
            number=int(header["n"]),
            entities=dict(zip(ids, parts[half:], strict=True)),
            beat=int(header["beat"]),
            refreshed=frozenset(int(s) for s in header["refreshed"]),
        )
    except (struct.error, KeyError, TypeError, ValueError, OverflowError) as error:
        raise error if isinstance(error, BadMessage) else BadMessage(f"not a message: {error}") from error


@dataclass(slots=True)
class _Sender:
    last: int = 0
    first_missed: int = 0
    last_missed: int = 0
    heard_s: float = 0.0


class Heard:
    """The last number of each sender, so that a gap is noticed."""

    def __init__(self) -> None:
        self._senders: dict[str, _Sender] = {}

    def must_pull(self, message: Message, now_s: float) -> bool:
        """Whether something of this sender did not arrive and is in Redis now, which only its beats tell.

        Duplicates and late messages are no gap. True once for each gap.
        """
        sender = self._senders.setdefault(message.sender, _Sender())
        sender.heard_s = now_s
        last_missed = message.number if message.beat else message.number - 1
        if last_missed > sender.last:
            sender.first_missed = sender.first_missed or sender.last + 1
            sender.last_missed = last_missed
        sender.last = max(sender.last, message.number)
        if not message.beat or not 0 < sender.first_missed <= message.number:
            return False
        # What was missed after the push that this beat ends is in Redis after the next one.
        sender.first_missed = message.number + 1 if sender.last_missed > message.number else 0
        return True

    def drop_silent(self, before_s: float) -> None:
        """Forget who said nothing since then: each start of a replica is another sender."""
        silent = [name for name, sender in self._senders.items() if sender.heard_s < before_s]
        for name in silent:
            del self._senders[name]
