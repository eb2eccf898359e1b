"""What a component implements to have its state shared. Only ``Syncable`` is required; the layer looks for the others.

All methods are called on the event loop's thread and never wait for anything. A merge must be idempotent, commutative
and associative, because values come twice, late and in any order: newest wins, union, maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids of entities that changed here, and of those that were deleted on purpose.

    One that was evicted since is among the changed ones still, and ``encode`` passes it over: its key expires.
    """

    updated: Collection[str] = ()
    deleted: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Everything that was dirty when generation ``generation`` was drained."""

    generation: int
    changes: Changes


@runtime_checkable
class Syncable(Protocol):
    """State that is pushed whole in every cycle."""

    @property
    def namespace(self) -> str:
        """Its stable name, a part of every key. What must agree between replicas, as a hash seed, belongs in it."""
        ...

    def snapshot(self) -> dict[str, bytes]:
        """All entities that are held, as a copy. Each value must decode on every version in the fleet."""
        ...

    def apply_remote(self, entity: str, data: bytes) -> bool:
        """Merge what another replica wrote. It never makes the entity dirty, and never makes it live longer here than
        its last use there allows.

        True says that what is held here now is more than ``data``, so that Redis needs it again (one replica overwrote
        what another had just written). Raises for bytes that do not decode: they are counted and left alone.
        """
        ...


@runtime_checkable
class DeltaSyncable(Syncable, Protocol):
    """State of which only what changed is pushed. ``dirty.Tracked`` does the bookkeeping."""

    def get_delta(self) -> Delta:
        """Drain what is dirty into a new generation. What gets dirty from now on belongs to the next one."""
        ...

    def clear_dirty(self, generation: int, failed: Collection[str] = ()) -> None:
        """``generation`` is in Redis, but for ``failed``, which are dirty again. Called once for each generation."""
        ...

    def encode(self, entities: Iterable[str]) -> dict[str, bytes]:
        """The present values of those of ``entities`` that are held and still in use.

        The layer asks for a pipeline's worth at a time, so that a big delta does not hold up the event loop.
        """
        ...

    def is_deleted_here(self, entity: str) -> bool:
        """Whether it was deleted here on purpose and Redis does not know yet: a pull must not bring it back."""
        ...


@runtime_checkable
class SyncHooks(Protocol):
    """Told when a pull of this state begins and ends; never around a push. What they raise is logged and ignored."""

    def on_sync_start(self) -> None: ...

    def on_sync_end(self) -> None:
        """Also after a pull that failed."""
        ...


@runtime_checkable
class StalePolicy(Protocol):
    """State that knows by itself that a remote value is too old, before its key expires."""

    def is_stale(self, entity: str, data: bytes) -> bool:
        """True: the key is deleted if it still holds ``data``, and ``data`` is not applied."""
        ...


@runtime_checkable
class Tombstones(Protocol):
    """State whose deletions travel as values, so that no replica brings an entity back."""

    def make_tombstone(self, entity: str) -> bytes: ...

    def is_tombstone(self, data: bytes) -> bool: ...

    def supersedes(self, data: bytes, tombstone: bytes) -> bool:
        """Whether ``data``, a live value or another tombstone, is strictly newer than ``tombstone``.

        False always is a fair answer: then a deleted entity stays deleted until its tombstone's TTL ends.
        """
        ...

    def delete_local(self, entity: str, tombstone: bytes) -> bool:
        """Forget the entity, without marking anything dirty. False: it was kept, because it is strictly newer."""
        ...


@runtime_checkable
class Lasting(DeltaSyncable, Protocol):
    """State that lives on without changes. Keys of what is still in use are written anew before they expire, and when
    they are missing in Redis (it was restarted empty)."""

    @property
    def life_s(self) -> float:
        """For how long an entity that nobody uses stays in use. A record TTL of at least that needs no refresh."""
        ...

    def live_ids(self) -> Collection[str]:
        """Ids of all that is still in use, as a copy."""
        ...


@runtime_checkable
class OwnTtl(Protocol):
    """State whose keys live for another time than the layer's default."""

    @property
    def record_ttl_s(self) -> float: ...


@runtime_checkable
class Announcing(DeltaSyncable, Protocol):
    """State whose changes are told to peers within milliseconds, beside the loop. ``dirty.Tracked`` does it."""

    def announce_to(self, wake: Callable[[], None] | None) -> None:
        """From now on call ``wake`` when something changed and nothing was waiting to be told. None: nobody listens."""
        ...

    def take_news(self, most: int) -> Changes | None:
        """What was not told yet, ``most`` entities of it at most; None when there is nothing. It stays dirty."""
        ...
