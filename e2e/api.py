"""The tests' own view of the API server: plain JSON over one kept connection, so that polling costs next to nothing."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

POLL_S = 0.1
MERGE_PATCH = "application/merge-patch+json"


class Refused(Exception):
    """The API server said no; ``str()`` is its message."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class ApiServer:
    """Calls with the administrator's rights. Paths are the API's own, such as ``/api/v1/namespaces/default/pods``."""

    def __init__(self, kubeconfig: Path):
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._address = urlsplit(cluster["server"]).netloc
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._trust = ssl.create_default_context(cadata=authority)
        self._headers = {"Authorization": f"Bearer {user['token']}", "Accept": "application/json"}
        self._connection: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def create(self, path: str, body: Any) -> Any:
        return self._call("POST", path, body)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, body, MERGE_PATCH)

    def delete(self, path: str) -> None:
        """Ask for the deletion; what is gone already is fine."""
        try:
            self._call("DELETE", path)
        except Refused as error:
            if error.status != 404:
                raise

    def text(self, path: str) -> str:
        """What the API server passes on as it is, such as a container's log."""
        return self._send("GET", path).decode(errors="replace")

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except Refused as error:
            if error.status != 404:
                raise
            return False
        return True

    def watch(self, path: str, resource_version: str) -> Iterator[Any]:
        """Objects as they change after ``resource_version``, over a connection of its own, until that is closed."""
        connection = http.client.HTTPSConnection(self._address, context=self._trust, timeout=60)
        try:
            connection.request("GET", f"{path}&watch=1&resourceVersion={resource_version}", headers=self._headers)
            answer = connection.getresponse()
            while line := answer.readline():
                yield json.loads(line)["object"]
        finally:
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        return json.loads(self._send(method, path, body, content_type))

    def _send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> bytes:
        content = None if body is None else json.dumps(body)
        headers = self._headers | ({} if body is None else {"Content-Type": content_type})
        for is_last in (False, True):
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(self._address, context=self._trust, timeout=30)
            try:
                self._connection.request(method, path, content, headers)
                answer = self._connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, ConnectionError, ssl.SSLError):
                # The server closes what was idle; a request that met that was not carried out.
                self.close()
                if is_last:
                    raise
        if answer.status >= 400:
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError):  # not the API server's own words
                message = text.decode(errors="replace")
            raise Refused(answer.status, message)
        return text


def eventually(what: str, condition: Callable[[], Any], within_s: float = 30.0) -> Any:
    """The first truthy value of ``condition``; AssertionError with its last value when there is none in time.

    An OSError or HTTPException counts as "not yet": whatever is asked may be starting again.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            value, problem = condition(), ""
        except (OSError, http.client.HTTPException) as error:
            value, problem = None, f"; {type(error).__name__}: {error}"
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what} (last: {value!r}{problem})")
        time.sleep(POLL_S)
