"""A prompt as a chain of block hashes: equal hashes mean equal prompts up to and with that block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import xxhash

_LARGEST_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class PrefixSettings:
    """Of the whole process. Replicas that share their tables have to agree on block size and seed."""

    seed: int = 0
    block_bytes: int = 128
    most_hashed: int = 512
    """Blocks of one prompt that are hashed at most: 64 KiB of 128 bytes each. What differs later looks equal."""
    capacity: int = 200_000
    """Blocks in the table."""
    ttl_s: int = 20 * 60
    """Life of a block that is not used again."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, is_shared: bool, random: Random) -> PrefixSettings:
        """``is_shared``: with other replicas, so the seed must not be drawn. A bad value keeps the default."""
        standard = cls()
        seed = _whole(environ.get("AIBRIX_PREFIX_CACHE_HASH_SEED"), 0, _LARGEST_SEED)
        if seed is None:
            seed = 0 if is_shared else random.getrandbits(64)

        def figure(name: str, default: int, most: int) -> int:
            value = _whole(environ.get("AIBRIX_PREFIX_CACHE_" + name), 1, most)
            return default if value is None else value

        return cls(
            seed=seed,
            block_bytes=figure("BLOCK_SIZE", standard.block_bytes, 1 << 20),
            most_hashed=figure("MOST_BLOCKS_HASHED", standard.most_hashed, 1 << 16),
            capacity=figure("BLOCK_NUMBER", standard.capacity, 1 << 27),
        )


def _whole(text: str | None, least: int, most: int) -> int | None:
    if text is None or not text.strip().isdecimal():
        return None
    number = int(text) if len(text) < 25 else most + 1
    return number if least <= number <= most else None


def root(model: str, settings: PrefixSettings) -> bytes:
    """Parent of a prompt's first block. It depends on the model, whose engines share no cache with another's."""
    return xxhash.xxh64_intdigest(model.encode("utf-8", "surrogatepass"), settings.seed).to_bytes(8, "little")


def hashes_of(text: str, first_parent: bytes, settings: PrefixSettings) -> tuple[int, ...]:
    """xxhash64 with the seed over the parent's hash (8 bytes, little endian) and the block, block by block.

    A short last block is left out.
    """
    size = settings.block_bytes
    most = size * settings.most_hashed
    data = text[:most].encode("utf-8", "surrogatepass")
    digest, seed = xxhash.xxh64_intdigest, settings.seed
    parent = first_parent
    hashes: list[int] = []
    for start in range(0, min(len(data), most) - size + 1, size):
        found = digest(parent + data[start : start + size], seed)
        hashes.append(found)
        parent = found.to_bytes(8, "little")
    return tuple(hashes)
