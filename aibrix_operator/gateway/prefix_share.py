"""The prefix table as state that gateway replicas share: one entity a block.

Key: the block's hash in decimal. Value: ``{"model_to_pods": {model: {"namespace/pod:port#uid": unix nanoseconds}}}``.
A block that nobody uses any more is not deleted: its key expires with the table's own time to live.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import orjson

from aibrix_operator.gateway.prefix_table import NS, PrefixTable
from aibrix_operator.gateway.view import Model
from aibrix_operator.statesync.dirty import DirtySet
from aibrix_operator.statesync.syncable import Changes, Delta

_LARGEST_HASH = 2**64 - 1
_TOLD_EACH_S = 60
_Uses = Mapping[str, Mapping[str, int]]
"""Model → incarnation → when it was last used."""


class PrefixShare:
    """Implements ``statesync``'s Lasting, Announcing, StalePolicy, SyncHooks and OwnTtl for one table."""

    def __init__(self, table: PrefixTable, models: Mapping[str, Model], clock: Callable[[], float]) -> None:
        """``models``: the view's, in which Pods are looked up. ``clock``: Unix seconds."""
        self._table = table
        self._models = models
        self._clock = clock
        self._dirty: DirtySet[int] = DirtySet()
        self._known: dict[str, tuple[Model, frozenset[str]]] = {}
        self._arriving: dict[tuple[int, int], object] = {}
        self._read: tuple[bytes | None, _Uses] = (None, {})
        """The last value that was read: the layer asks two questions about each."""
        self._told: dict[int, int] = {}
        """Block → when it was last marked for the others."""
        table.tell_changes(self._changed)

    @property
    def namespace(self) -> str:
        """Names what must agree: other block sizes or seeds give other hashes."""
        settings = self._table.settings
        return f"prefixcache-b{settings.block_bytes}-s{settings.seed}"

    @property
    def life_s(self) -> float:
        """See ``Lasting``."""
        return float(self._table.settings.ttl_s)

    @property
    def record_ttl_s(self) -> float:
        """As long as a block lives, so that no key has to be written anew only to stay."""
        return float(self._table.settings.ttl_s)

    @property
    def dirty_count(self) -> int:
        """How many blocks are not in Redis yet."""
        return len(self._dirty)

    def live_ids(self) -> Collection[str]:
        """See ``Lasting``."""
        return [str(block) for block in self._table.blocks()]

    def snapshot(self) -> dict[str, bytes]:
        """All blocks."""
        return self._encode(self._table.blocks())

    def encode(self, entities: Iterable[str]) -> dict[str, bytes]:
        """See ``DeltaSyncable``."""
        return self._encode(int(entity) for entity in entities)

    def get_delta(self) -> Delta:
        """See ``DeltaSyncable``."""
        generation = self._dirty.drain()
        return Delta(generation.number, Changes([str(block) for block in generation.updated]))

    def clear_dirty(self, generation: int, failed: Collection[str] = ()) -> None:
        """See ``DeltaSyncable``."""
        self._dirty.settle(generation, [int(entity) for entity in failed])

    def is_deleted_here(self, entity: str) -> bool:
        """See ``DeltaSyncable``. Blocks are never deleted on purpose: they expire."""
        return False

    def announce_to(self, wake: Callable[[], None] | None) -> None:
        """See ``Announcing``."""
        self._dirty.announce_to(wake)

    def take_news(self, most: int) -> Changes | None:
        """See ``Announcing``."""
        updated, _ = self._dirty.take_untold(most)
        return Changes({str(block) for block in updated}) if updated else None

    def on_sync_start(self) -> None:
        """Blocks that one request used arrive together and share their record of it."""
        self._arriving.clear()

    def on_sync_end(self) -> None:
        """See ``on_sync_start``. What was told of blocks that are gone is forgotten here too."""
        self._arriving.clear()
        if len(self._told) > 2 * len(self._table) + 1000:
            held = set(self._table.blocks())
            self._told = {block: at_ns for block, at_ns in self._told.items() if block in held}

    def is_stale(self, entity: str, data: bytes) -> bool:
        """No engine used it within the time to live."""
        try:
            uses = self._decode(data)
        except ValueError:
            return False  # apply_remote says what is wrong with it
        oldest_ns = self._oldest_ns()
        return not any(at_ns > oldest_ns for pods in uses.values() for at_ns in pods.values())

    def apply_remote(self, entity: str, data: bytes) -> bool:
        """The newest time wins, engine by engine; those that the view does not have are left out. ValueError: corrupt.

        A block keeps the age that it has at the replica which used it.
        """
        if not (entity.isascii() and entity.isdigit() and len(entity) <= 20 and int(entity) <= _LARGEST_HASH):
            raise ValueError(f"{entity[:40]!r} is not the hash of a block")
        block = int(entity)
        uses = self._decode(data)
        oldest_ns, now_ns = self._oldest_ns(), int(self._clock() * NS)
        if len(self._arriving) > 1024:
            self._arriving.clear()
        for model, pods in uses.items():
            known = self._incarnations(model)
            for incarnation, at_ns in pods.items():
                if incarnation in known and at_ns > oldest_ns:
                    self._table.learn(block, model, incarnation, min(at_ns, now_ns), self._arriving)
        held = self._table.uses(block)
        if held is None:
            return False
        said = uses.get(held[0], {})
        return any(at_ns > said.get(incarnation, 0) for incarnation, at_ns in held[1].items())

    def _changed(self, blocks: Sequence[int], new: Collection[int], at_ns: int) -> None:
        """New ones at once; of those in use the others hear once a minute, which costs them a minute of their life."""
        told, before_ns = self._told, at_ns - _TOLD_EACH_S * NS
        due = {block for block in blocks if told.get(block, 0) <= before_ns}
        due.update(new)
        if due:
            told.update(dict.fromkeys(due, at_ns))
            self._dirty.mark(due)

    def _oldest_ns(self) -> int:
        return int((self._clock() - self._table.settings.ttl_s) * NS)

    def _encode(self, blocks: Iterable[int]) -> dict[str, bytes]:
        encoded: dict[str, bytes] = {}
        for block in blocks:
            uses = self._table.uses(block)
            if uses is not None:
                encoded[str(block)] = orjson.dumps({"model_to_pods": {uses[0]: uses[1]}})
        return encoded

    def _decode(self, data: bytes) -> _Uses:
        if self._read[0] is not data:
            self._read = (data, _parse(data))
        return self._read[1]

    def _incarnations(self, name: str) -> frozenset[str]:
        model = self._models.get(name)
        if model is None:
            self._known.pop(name, None)
            return frozenset()
        known = self._known.get(name)
        if known is None or known[0] is not model:
            known = self._known[name] = (model, frozenset(endpoint.incarnation for endpoint in model.endpoints))
        return known[1]


def _parse(data: bytes) -> _Uses:
    """ValueError: not the value of a block."""
    document = orjson.loads(data)
    uses = document.get("model_to_pods") if isinstance(document, dict) else None
    if not isinstance(uses, dict):
        raise ValueError("a block's value has no model_to_pods")
    for pods in uses.values():
        if not isinstance(pods, dict) or any(type(at_ns) is not int or at_ns < 0 for at_ns in pods.values()):
            raise ValueError("a block's value has Pods without times of use")
    return uses
