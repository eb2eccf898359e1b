"""Where the log of a command goes."""

from __future__ import annotations

import logging
import sys

import typer


def to_stderr(level: str) -> None:
    """One line per record; kopf's story of its own inner life only when it warns, or at DEBUG."""
    names = logging.getLevelNamesMapping()
    if level.upper() not in names:
        raise typer.BadParameter(f"{level!r} is no log level; use DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(
        level=names[level.upper()], stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if names[level.upper()] > logging.DEBUG:
        logging.getLogger("kopf").setLevel(max(logging.WARNING, names[level.upper()]))
