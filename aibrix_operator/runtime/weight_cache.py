"""Markers in the node's weight cache that say which artifacts were served here: a hint of locality for placement.

Best effort by design. A missing, broken or stale marker must never fail an activation, so every error ends here.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from aibrix_operator.runtime_api.wire import is_encodable

logger = logging.getLogger(__name__)


def markers_dir(cache_dir: Path) -> Path:
    """Where the markers lie."""
    return cache_dir.expanduser() / ".aibrix" / "served"


def write_marker(cache_dir: Path, model_name: str, artifact_url: str) -> None:
    """Leave a marker. A name that would leave the directory gets none."""
    directory = markers_dir(cache_dir)
    if "/" in model_name:
        logger.debug("model %r gets no cache marker: its name is no file name", model_name)
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        marker = {"model_name": model_name, "artifact_url": artifact_url}
        (directory / f"{model_name}.json").write_text(json.dumps(marker), encoding="utf-8")
    except (OSError, ValueError) as error:
        logger.warning("no cache marker for model %r: %s", model_name, error)


def cached_artifacts(cache_dir: Path) -> tuple[str, ...]:
    """The artifact URLs of all readable markers, sorted, each once."""
    found: set[str] = set()
    try:
        markers = list(markers_dir(cache_dir).glob("*.json"))
    except OSError as error:
        logger.debug("the cache markers cannot be listed: %s", error)
        return ()
    for marker in markers:
        try:
            content = json.loads(marker.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        url = content.get("artifact_url") if isinstance(content, dict) else None
        if isinstance(url, str) and url and is_encodable(url):
            found.add(url)
    return tuple(sorted(found))
