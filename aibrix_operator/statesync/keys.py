"""Names of keys and channels: ``<prefix>:{<namespace>}:e:<id>``. The braces are Redis Cluster's hash tag, so that a
namespace lives on one shard. Nothing here asks Redis.
"""

from __future__ import annotations

FORBIDDEN_IN_NAMESPACES = frozenset("{}:")
FORBIDDEN_IN_PREFIXES = frozenset("{}")
GLOB_CHARACTERS = frozenset("*?[]\\")


class BadName(ValueError):
    """A namespace or prefix with which two namespaces could read each other's keys, or that leaves one shard."""


def check_namespace(namespace: str) -> str:
    """``namespace`` itself. Raises ``BadName`` for one that is empty or holds ``{``, ``}`` or ``:``."""
    if not namespace:
        raise BadName("the namespace is empty: every entity needs one, for its key")
    if found := FORBIDDEN_IN_NAMESPACES.intersection(namespace):
        raise BadName(
            f"the namespace {namespace!r} holds {' '.join(sorted(found))}, which its keys could not tell apart"
        )
    return namespace


def check_prefix(prefix: str) -> str:
    """``prefix`` itself. Raises ``BadName`` for one that is empty or holds ``{`` or ``}``."""
    if not prefix:
        raise BadName("the key prefix is empty")
    if found := FORBIDDEN_IN_PREFIXES.intersection(prefix):
        raise BadName(f"the key prefix {prefix!r} holds {' '.join(sorted(found))}, which would move the hash tag")
    return prefix


def entities_prefix(prefix: str, namespace: str) -> str:
    """What every key of the namespace begins with."""
    return f"{prefix}:{{{namespace}}}:e:"


def entity_key(prefix: str, namespace: str, entity: str) -> bytes:
    """The key of one entity. Any id will do, also one that holds colons or is no valid UTF-8 (surrogateescape)."""
    return (entities_prefix(prefix, namespace) + entity).encode(errors="surrogateescape")


def scan_pattern(prefix: str, namespace: str) -> bytes:
    """The glob that finds the keys of this namespace and no other."""
    fixed = entities_prefix(prefix, namespace)
    return ("".join(f"\\{c}" if c in GLOB_CHARACTERS else c for c in fixed) + "*").encode()


def cut_entity(prefix: str, namespace: str, key: bytes) -> str | None:
    """The id in ``key``. None when the key is of another namespace or prefix."""
    fixed = entities_prefix(prefix, namespace).encode()
    return key[len(fixed) :].decode(errors="surrogateescape") if key.startswith(fixed) else None


def news_channel(prefix: str, namespace: str) -> str:
    """The channel on which replicas tell each other what changed in the namespace."""
    return f"{prefix}:{{{namespace}}}:news"
