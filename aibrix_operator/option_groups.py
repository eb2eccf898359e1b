"""Commands with many options: dataclasses hold them in groups, and typer sees their fields one by one."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` for typer. Each of its parameters is a dataclass whose fields are options that have a default."""
    groups: dict[str, Any] = {
        name: hint for name, hint in typing.get_type_hints(command).items() if dataclasses.is_dataclass(hint)
    }
    fields = {name: [field.name for field in dataclasses.fields(group)] for name, group in groups.items()}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        command(**{name: group(**{field: values[field] for field in fields[name]}) for name, group in groups.items()})

    options = [option for group in groups.values() for option in _options(group)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # where inspect looks first
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(group)
    ]
