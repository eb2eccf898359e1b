"""Objects below a prefix of a bucket: S3 and what speaks like it (TOS, MinIO), and Google Cloud Storage.

``obstore`` (Rust, one wheel without dependencies) serves all of them from one event loop, resumes, and can be
cancelled; boto3 and google-cloud-storage are two client stacks of synchronous code.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from obstore import exceptions
from obstore.store import GCSStore, S3Store

from aibrix_operator.artifacts import errors
from aibrix_operator.artifacts.address import Address, Origin
from aibrix_operator.artifacts.source import Credentials, RemoteFile, redacted, safe_path
from aibrix_operator.artifacts.web import raise_for

if TYPE_CHECKING:  # types that obstore's stubs alone know
    from obstore.store import ClientConfig, RetryConfig, S3Config

_CHUNK_BYTES = 1 << 20
_CLIENT: ClientConfig = {"connect_timeout": timedelta(seconds=15), "timeout": timedelta(days=1), "allow_http": True}
"""An endpoint that is given as http:// is meant so: MinIO inside a cluster."""
_RETRIES: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}

_STATUS = re.compile(r"status code: ([45]\d\d)")
_DEFAULT_TOS_REGION = "cn-beijing"


class ObjectStoreSource:
    """All objects below a prefix, or the one object of that name."""

    def __init__(self, address: Address, credentials: Credentials, environment: Mapping[str, str]) -> None:
        """Raises ``ArtifactError`` for credentials that cannot be read."""
        self._credentials = credentials
        self._what = f"{address.origin}://{address.place}/{address.path}".rstrip("/")
        self._prefix = address.path
        self._keys: dict[str, str] = {}
        try:
            self._store = _store_of(address, credentials, environment)
        except exceptions.BaseError:
            # Its text may repeat what could not be read.
            raise errors.NotAllowedError(f"the credentials for {self._what} cannot be read") from None

    async def files(self) -> Sequence[RemoteFile]:
        """Folder markers are no files: consoles make empty objects ``…/``, which obstore tells without the slash."""
        found: list[RemoteFile] = []
        with self._in_our_words():
            async for page in self._store.list(self._prefix or None):
                for meta in page:
                    name = meta["path"].removeprefix(self._prefix).lstrip("/")
                    found.append(RemoteFile(safe_path(name), meta["size"], meta["e_tag"] or ""))
                    self._keys[name] = meta["path"]
            folders = {str(parent) for file in found for parent in PurePosixPath(file.path).parents}
            found = [file for file in found if file.size_bytes or file.path not in folders]
            if not found and self._prefix:
                meta = await self._store.head_async(self._prefix)
                name = self._prefix.rpartition("/")[2]
                found.append(RemoteFile(safe_path(name), meta["size"], meta["e_tag"] or ""))
                self._keys[name] = self._prefix
        if not found:
            raise errors.NotFoundError(f"{self._what} has no objects")
        return found

    async def read(self, file: RemoteFile, offset: int) -> AsyncIterator[bytes]:
        """Only the version that was listed."""
        if offset >= file.size_bytes:
            return  # a store refuses an empty range
        with self._in_our_words():
            result = await self._store.get_async(
                self._keys[file.path],
                options={"if_match": file.version or None, "range": (offset, file.size_bytes)},
            )
            async for chunk in result.stream(min_chunk_size=_CHUNK_BYTES):
                yield bytes(chunk)

    async def close(self) -> None:
        """The store keeps no connection that must be given back."""

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:  # obstore raises Python's own
            raise errors.NotFoundError(f"{self._what} has no objects") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise errors.NotAllowedError(f"{self._what} is not allowed with these credentials") from error
        except exceptions.PreconditionError as error:
            raise errors.ChangedError(f"{self._what} changed while it was fetched") from error
        except exceptions.BaseError as error:
            text = str(error).partition("Debug source:")[0]
            # obstore 0.12 has kinds for the answers to an object's call, and only a text for those to a list's.
            if answered := _STATUS.search(text):
                raise_for(int(answered[1]), self._what)
            raise errors.UnreachableError(f"{self._what}: {redacted(text, self._credentials)}") from None


def _store_of(address: Address, credentials: Credentials, environment: Mapping[str, str]) -> S3Store | GCSStore:
    match address.origin:
        case Origin.GCS:
            return _gcs(address.place, credentials)
        case Origin.TOS:
            return _tos(address.place, credentials, environment)
        case _:
            return _s3(address.place, credentials)


def _s3(bucket: str, credentials: Credentials) -> S3Store:
    """What is not given comes from the environment (AWS_…), or from the machine's own role."""
    config: S3Config = {}
    if key := credentials.get("aws_access_key_id"):
        config["access_key_id"] = key
    if secret := credentials.get("aws_secret_access_key"):
        config["secret_access_key"] = secret
    if session := credentials.get("aws_session_token"):
        config["session_token"] = session
    if region := credentials.get("aws_region"):
        config["region"] = region
    if endpoint := credentials.get("aws_endpoint_url"):
        config["endpoint"] = endpoint
    return S3Store(bucket, config=config, client_options=_CLIENT, retry_config=_RETRIES)


def _tos(bucket: str, credentials: Credentials, environment: Mapping[str, str]) -> S3Store:
    """TOS through its S3 interface, which wants the bucket in the host's name."""

    def told(*names: str) -> str:
        given = (credentials.get(name) or environment.get(name) for name in names)
        return next(filter(None, given), "")

    key, secret = told("TOS_ACCESS_KEY"), told("TOS_SECRET_KEY")
    if not (key and secret):
        raise errors.NotAllowedError(f"tos://{bucket} needs the credentials TOS_ACCESS_KEY and TOS_SECRET_KEY")
    region = told("TOS_REGION", "tos_region", "region") or _DEFAULT_TOS_REGION
    endpoint = told("TOS_ENDPOINT", "tos_endpoint", "endpoint") or f"tos-s3-{region}.volces.com"
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    host = parts.netloc if parts.netloc.startswith("tos-s3-") else parts.netloc.replace("tos-", "tos-s3-", 1)
    config: S3Config = {"access_key_id": key, "secret_access_key": secret, "region": region}
    if session := told("TOS_SESSION_KEY"):
        config["session_token"] = session
    if _is_ip(parts.hostname or ""):
        config["endpoint"] = f"{parts.scheme}://{parts.netloc}"
    else:
        config["endpoint"] = f"{parts.scheme}://{bucket}.{host}"
        config["virtual_hosted_style_request"] = True
    return S3Store(bucket, config=config, client_options=_CLIENT, retry_config=_RETRIES)


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _gcs(bucket: str, credentials: Credentials) -> GCSStore:
    """What is not given comes from the environment (GOOGLE_…), or from the machine's own service account."""
    account = credentials.get("gcp_service_account_json")
    if account:
        return GCSStore(bucket, config={"service_account_key": account}, client_options=_CLIENT, retry_config=_RETRIES)
    return GCSStore(bucket, client_options=_CLIENT, retry_config=_RETRIES)
