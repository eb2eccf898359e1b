"""Keys in Redis, spelled once. Text that clients and users choose can't make one key of two."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote

BINS: Final = 64
"""A window's bin is its number modulo this, as upstream has it. A key lives for its own window, never for 64."""

GATEWAYS: Final = "aibrix:rrq:gateways"
"""Sorted set: gateway → Redis' time of its last sign of life."""
RUNNING: Final = "aibrix:rrq:running"
"""Hash: gateway → what it has running, ``{"Endpoint.key": count}``."""

_PLAIN: Final = "@+/"
"""Beside letters, digits and ``-._~``. A colon is none of them: it is what parts of a key are told apart by."""


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    return quote(text, _PLAIN, errors="surrogatepass")


def user_rpm(name: str, window: int) -> str:
    """Counter: requests of a user in a minute."""
    return f"aibrix:{_plain(name)}_RPM_CURRENT:{window % BINS}"


def user_tpm(name: str, window: int) -> str:
    """Counter: tokens of a user in a minute."""
    return f"aibrix:{_plain(name)}_TPM_CURRENT:{window % BINS}"


def model_rps(model: str, window_s: int, window: int) -> str:
    """Counter: requests of a model in a window. Windows of other lengths than a second have counters of their own."""
    length = "" if window_s == 1 else f"{window_s}s:"
    return f"aibrix_model:{_plain(model)}_MODEL_RPS_CURRENT:{length}{window % BINS}"


def slots(endpoint_key: str) -> str:
    """Hash: gateway → slots that it holds at an endpoint. Ports are told apart: claims of one Pod have caps of their
    own."""
    return f"aibrix:rrq:{endpoint_key}"


def user_record(name: str) -> str:
    """String: a user's record, as administrators write it. The name stays as it is; nothing follows it."""
    return f"aibrix-users/{name}"
