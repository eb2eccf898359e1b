"""Wrong versions of a rule, each planted into a module as it is imported. No file is changed.

A fault names the module and the text of the one place that it changes. When that text is no longer there exactly once
the import fails, so that a rule that was rewritten takes its fault along.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

PACKAGE = "aibrix_operator"
CROWDED = 1_000_000
"""``schedule.CROWDED_FROM``, which is not to be imported before a fault is planted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong version of a rule."""

    name: str
    """What the controller does wrong, in a few words."""
    module: str
    """Below ``aibrix_operator``."""
    text: str
    """What stands there, exactly once."""
    wrong: str
    """What is planted in its place."""
    seeds: int = 12
    """It must be found in so many schedules: those of the seeds from ``first`` on."""
    first: int = 0
    """0, or ``CROWDED``: in a pool that is too small for its claims."""

    @property
    def module_name(self) -> str:
        return f"{PACKAGE}.{self.module}"


class Misplanted(ImportError):
    """The text of a fault is not there exactly once, or its module was imported before it was planted."""


def plant(fault: Fault) -> None:
    """Have this process import the fault's module with the fault in it. Raises Misplanted when it is too late."""
    imported = sorted(name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}."))
    if imported:
        raise Misplanted(f"{fault.name}: {imported[0]} is imported already, and may hold what is to be changed")
    sys.meta_path.insert(0, _Finder(fault))


class _Finder(MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._fault.module_name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise Misplanted(f"{self._fault.name}: there is no module {fullname}")
        spec.loader = _Loader(fullname, spec.origin, self._fault)
        return spec


class _Loader(SourceFileLoader):
    """Compiles the changed source; nothing is read from or written to the bytecode cache."""

    def __init__(self, fullname: str, path: str, fault: Fault) -> None:
        super().__init__(fullname, path)
        self._fault = fault

    def get_code(self, fullname: str) -> CodeType:
        source, fault = self.get_source(fullname), self._fault
        found = source.count(fault.text)
        if found != 1:
            raise Misplanted(f"{fault.name}: its text occurs {found} times in {fullname}, not once:\n{fault.text}")
        changed = source.replace(fault.text, fault.wrong)
        return compile(changed, self.get_filename(fullname), "exec", dont_inherit=True)
