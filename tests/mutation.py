"""How many faults, put into the ledger one at a time, its own tests find. ``make mutate`` runs this.

Cosmic Ray makes the mutants. Each is written into a copy of the tree, so that a run that is cut off leaves none behind,
and tried in a fork of a process that has pytest loaded, which takes a third of the time of a new process.
Prints every mutant that no test noticed, and the score; ends with 1 when the score is below ``WANTED_PERCENT``.
"""

from __future__ import annotations

import difflib
import itertools
import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import _hypothesis_pytestplugin
import hypothesis.strategies  # noqa: F401  forks need not load it again
import pytest
from cosmic_ray import plugins
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "mutation"
LEDGER = "aibrix_operator/ledger"
TESTS = "tests/unit/ledger"
WANTED_PERCENT = 90
TIMEOUT_S = 120
"""Many times what all tests need, also on a busy machine: a mutant that takes longer loops, and was noticed."""
LEFT_OUT = re.compile(
    "core/("
    "Variable"  # wants to be told names of variables
    "|ReplaceBinaryOperator_BitOr_"  # `|` stands in annotations only, and those are never evaluated
    "|ReplaceBinaryOperator_.*_(RShift|BitXor|BitOr|BitAnd|Pow|Mod)"  # no better than the other faults there
    "|ReplaceComparisonOperator_(Lt|LtE|Gt|GtE)_Is"  # the same
    "|ReplaceComparisonOperator_Is(Not)?_(Lt|LtE|Gt|GtE)"  # the order of enums means nothing
    "|ReplaceComparisonOperator_(Is_Eq|IsNot_NotEq)"  # the same for None and enums
    ")"
)
"""Faults that nobody makes, that no test could tell from the code, or that every test tells at once."""


def mutants(module: str) -> Iterator[tuple[str, str]]:
    """(module, source) of every mutant of one module of the ledger."""
    source = (ROOT / LEDGER / module).read_text()
    for name in sorted(plugins.operator_names()):
        if LEFT_OUT.match(name):
            continue
        for occurrence in itertools.count():
            mutant = mutate_code(source, plugins.get_operator(name)(), occurrence)
            if mutant is None:
                break
            yield module, mutant


def copy_of_tree() -> Path:
    """This worker's own copy of what the ledger's tests need."""
    return WORK / str(os.getpid())


def prepare() -> None:
    """Make this worker's copy, and see its tests pass."""
    copy = copy_of_tree()
    for folder in (LEDGER, TESTS):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("aibrix_operator/__init__.py", "tests/conftest.py"):
        shutil.copy2(ROOT / file, copy / file)
    (copy / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    if not passes(copy):
        raise RuntimeError(f"the tests of the ledger fail without any fault, see {copy / 'output'}")
    sys.dont_write_bytecode = True


def passes(copy: Path) -> bool:
    """Whether all tests pass in the copy as it is now."""
    child = os.fork()
    if child == 0:
        signal.alarm(TIMEOUT_S)
        os.chdir(copy)
        output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.path.insert(0, str(copy))
        options = ["-q", "-x", "-c", "pytest.ini", "-p", "no:cacheprovider", "--hypothesis-profile=mutation", TESTS]
        os._exit(pytest.main(options, plugins=[_hypothesis_pytestplugin]))
    return os.waitpid(child, 0)[1] == 0


def is_noticed(mutant: tuple[str, str]) -> bool:
    """Whether a test fails with this fault in the ledger."""
    module, source = mutant
    file = copy_of_tree() / LEDGER / module
    file.write_text(source)
    try:
        return not passes(copy_of_tree())
    finally:
        shutil.copy2(ROOT / LEDGER / module, file)


def main() -> int:
    """Try every mutant of the ledger, ``JOBS`` of them at a time."""
    shutil.rmtree(WORK, ignore_errors=True)
    modules = sorted(p.name for p in (ROOT / LEDGER).glob("*.py") if p.name != "__init__.py")
    tried, survived = Counter[str](), Counter[str]()
    everything = [mutant for module in modules for mutant in mutants(module)]
    with multiprocessing.get_context("fork").Pool(int(os.environ.get("JOBS", "2")), prepare) as pool:
        for (module, source), noticed in zip(everything, pool.imap(is_noticed, everything), strict=True):
            tried[module] += 1
            if not noticed:
                survived[module] += 1
                before = (ROOT / LEDGER / module).read_text()
                difference = difflib.unified_diff(
                    before.splitlines(), source.splitlines(), module, module, "", "", 0, ""
                )
                print("\n".join(difference), flush=True)
    for module, count in tried.items():
        print(f"{module}: {count - survived[module]} of {count} mutants were noticed")
    percent = 100 * (1 - survived.total() / tried.total())
    print(f"mutation score of {LEDGER}: {percent:.1f} % of {tried.total()} mutants; {WANTED_PERCENT} % are wanted")
    return 0 if percent >= WANTED_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
