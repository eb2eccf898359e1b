"""A client that never stops asking, as those do who must notice nothing of what is done to the cluster."""

from __future__ import annotations

import http.client
import threading
from typing import Any

from e2e.gateway import Gateway


class Client:
    """Asks one model without a pause, on a new connection each time, while it is entered."""

    def __init__(self, gateway: Gateway, model: str) -> None:
        self.asked = 0
        self.failed: list[str] = []
        self._gateway, self._model = gateway, model
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            self.asked += 1
            try:
                reply = self._gateway.chat(self._model, timeout_s=10.0)
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
            else:
                if reply.status != 200:
                    self.failed.append(f"{reply.status} {reply.text[:200]}")
