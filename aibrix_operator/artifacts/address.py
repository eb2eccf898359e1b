"""Artifact addresses, read once. Pure.

| address | what lies there |
|---|---|
| ``huggingface://org/name[@revision]``, ``hf://…`` | a repository of the hub |
| ``s3://bucket/prefix``, ``tos://bucket/prefix`` | all objects below the prefix, or the one object of that name |
| ``gcs://bucket/prefix``, ``gs://…`` | the same |
| ``https://host/file``, ``http://…`` | one file |
| ``/folder`` | a folder or file of this machine |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from aibrix_operator.artifacts.errors import AddressError

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


class Origin(StrEnum):
    """Who holds an artifact."""

    HUB = "huggingface"
    S3 = "s3"
    TOS = "tos"
    GCS = "gcs"
    WEB = "https"
    LOCAL = "local"


_ORIGINS = {
    "huggingface": Origin.HUB,
    "hf": Origin.HUB,
    "s3": Origin.S3,
    "tos": Origin.TOS,
    "gcs": Origin.GCS,
    "gs": Origin.GCS,
    "http": Origin.WEB,
    "https": Origin.WEB,
}


@dataclass(frozen=True, slots=True)
class Address:
    """One artifact's address."""

    origin: Origin
    place: str
    """The hub's repository, a bucket, a whole web address, or an absolute path."""
    path: str = ""
    """In a bucket: the prefix without slashes around it. Of the hub: the revision, empty for the default one."""


def shown(url: str) -> str:
    """``url`` as texts may name it: without user, password, query and fragment, which may be secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no address)"
    if not parts.scheme:
        return url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2] if '@' in parts.netloc else parts.netloc}{parts.path}"


def parse_address(url: str) -> Address:
    """Raises ``AddressError``, whose text says which forms there are."""
    if url.startswith("/"):
        return Address(Origin.LOCAL, url)
    scheme, separator, rest = url.partition("://")
    origin = _ORIGINS.get(scheme.lower()) if separator else None
    if origin is None:
        known = ", ".join(f"{known}://" for known in _ORIGINS)
        raise AddressError(f"{shown(url)} cannot be fetched: an address starts with {known} or is an absolute path")
    if origin is Origin.HUB:
        repository, _, revision = rest.strip("/").partition("@")
        if not _REPOSITORY.fullmatch(repository) or (revision and not _REVISION.fullmatch(revision)):
            raise AddressError(f"{shown(url)} names no repository: the form is {scheme}://organisation/name[@revision]")
        return Address(origin, repository, revision)
    if origin is Origin.WEB:
        if not _has_host(url) or shown(url).endswith("/"):
            raise AddressError(f"{shown(url)} names no file of a web server")
        return Address(origin, url)
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise AddressError(f"{shown(url)} names no bucket: the form is {scheme}://bucket/prefix")
    return Address(origin, bucket, prefix.strip("/"))


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
