"""Stories about controllers in virtual time."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aibrix_operator.sim import loop


def as_test(story: Callable[..., Any], play: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test with the name of ``story`` that plays it; an error that is logged fails it."""

    @functools.wraps(story)
    def test() -> None:
        logged = _Errors()
        logging.getLogger("aibrix_operator").addHandler(logged)
        try:
            loop.run(play())
        finally:
            logging.getLogger("aibrix_operator").removeHandler(logged)
        assert not logged.texts, "\n".join(logged.texts)

    del test.__wrapped__  # pytest would take the story's parameter for a fixture
    return test


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))
