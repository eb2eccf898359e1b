"""How many faults, put into the ledger one at a time, its own tests find. ``make mutate`` runs this.

Each module of the ledger is mutated in a copy of the tree, so that a run that is cut off leaves no fault behind.
Prints every mutant that no test noticed, and the score; ends with 1 when the score is below ``WANTED_PERCENT``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "mutation"
LEDGER = "aibrix_operator/ledger"
TESTS = "tests/unit/ledger"
WANTED_PERCENT = 90
TIMEOUT_S = 60.0
"""Ten times what all tests need: a mutant that takes longer loops."""
LEFT_OUT = (
    "core/ReplaceBinaryOperator_BitOr_",  # `|` stands in annotations only, and those are never evaluated
    "core/ReplaceBinaryOperator_.*_(RShift|BitXor|BitOr|BitAnd|Pow|Mod)",  # no better than the other faults there
    "core/ReplaceComparisonOperator_(Lt|LtE|Gt|GtE)_Is",  # the same
    "core/ReplaceComparisonOperator_Is(Not)?_(Lt|LtE|Gt|GtE)",  # the order of enums means nothing
    "core/ReplaceComparisonOperator_(Is_Eq|IsNot_NotEq)",  # the same for None and enums
)
"""Faults that nobody makes, that no test could tell from the code, or that every test tells at once."""
PYTEST = (
    "{python} -m pytest -q -x -c pytest.ini -p no:cacheprovider -p _hypothesis_pytestplugin "
    f"--hypothesis-profile=mutation {TESTS}"
)


def copy_of_tree(module: str) -> Path:
    """What the tests of the ledger need, and a configuration that loads no plugin they do without."""
    copy = WORK / module
    for folder in (LEDGER, TESTS):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("aibrix_operator/__init__.py", "tests/conftest.py"):
        shutil.copy(ROOT / file, copy / file)
    (copy / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = PYTEST.format(python=sys.executable)
    (copy / "mutation.toml").write_text(
        f'[cosmic-ray]\nmodule-path = "{LEDGER}/{module}.py"\ntimeout = {TIMEOUT_S}\nexcluded-modules = []\n'
        f"test-command = {json.dumps(command)}\n\n"
        '[cosmic-ray.distributor]\nname = "local"\n\n'
        f"[cosmic-ray.filters.operators-filter]\nexclude-operators = {json.dumps(LEFT_OUT)}\n"
    )
    return copy


def mutate(module: str) -> tuple[int, list[str]]:
    """How many mutants of the module were made, and the differences that no test noticed."""
    copy = copy_of_tree(module)
    env = os.environ | {"PYTHONPATH": str(copy), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    cosmic_ray = [sys.executable, "-m", "cosmic_ray.cli"]
    for command in (
        [*cosmic_ray, "init", "mutation.toml", "session.sqlite"],
        [sys.executable, "-m", "cosmic_ray.tools.filters.operators_filter", "session.sqlite", "mutation.toml"],
        [*cosmic_ray, "baseline", "mutation.toml"],
    ):
        subprocess.run(command, cwd=copy, env=env, check=True)
    # From here on no byte code is written: a mutant of the same size would be taken for one made in the same second.
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    subprocess.run([*cosmic_ray, "exec", "mutation.toml", "session.sqlite"], cwd=copy, env=env, check=True)
    with use_db(copy / "session.sqlite", WorkDB.Mode.open) as db:
        results = [result for _, result in db.completed_work_items if result.worker_outcome != WorkerOutcome.SKIPPED]
    for result in results:
        if result.worker_outcome != WorkerOutcome.NORMAL:
            raise RuntimeError(f"a mutant of {module} could not be tried: {result.output}")
    survivors = [result.diff or "" for result in results if result.test_outcome is TestOutcome.SURVIVED]
    return len(results), survivors


def main() -> int:
    """Mutate every module of the ledger, ``JOBS`` of them at a time."""
    shutil.rmtree(WORK, ignore_errors=True)
    modules = sorted(p.stem for p in (ROOT / LEDGER).glob("*.py") if p.stem != "__init__")
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        found = dict(zip(modules, pool.map(mutate, modules), strict=True))
    for _, survivors in found.values():
        print("\n".join(survivors))
    for module, (count, survivors) in found.items():
        print(f"{module}: {count - len(survivors)} of {count} mutants were noticed")
    count = sum(count for count, _ in found.values())
    percent = 100 * (count - sum(len(survivors) for _, survivors in found.values())) / count
    print(f"mutation score of {LEDGER}: {percent:.1f} % of {count} mutants; {WANTED_PERCENT} % are wanted")
    return 0 if percent >= WANTED_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
