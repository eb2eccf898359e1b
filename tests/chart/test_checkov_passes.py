"""checkov finds nothing in any variant but that images are named by tag: they have no digest before they are published.

A check that is skipped by an annotation counts as failed.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from chart_helm import CHART, render_text
from chart_variants import VARIANTS

CHECKS = CHART.parents[1] / ".cache" / "checks" / "bin" / "python"
NEEDS_A_DIGEST = "CKV_K8S_43"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Variant → what checkov found, all by one process."""
    python = Path(os.environ.get("AIBRIX_CHECKS_PYTHON", CHECKS))
    if not python.exists():
        pytest.skip(f"checkov is not installed: there is no {python}; `make checks` brings it")
    folder = tmp_path_factory.mktemp("rendered")
    files = {name: folder / f"{name}.yaml" for name in VARIANTS}
    for name, file in files.items():
        file.write_text(render_text(VARIANTS[name]))
    command = [str(python), str(Path(__file__).with_name("checkov_run.py")), *map(str, files.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout[done.stdout.index("{") :])
    return {name: told[str(file)] for name, file in files.items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_everything_passes(found, name):
    assert found[name]["passed"] > 100
    assert [(check, where) for check, where in found[name]["failed"] if check != NEEDS_A_DIGEST] == []


def test_images_with_a_digest_pass_that_check_too(found):
    assert found["digests"]["failed"] == []
    assert {check for check, _ in found["default"]["failed"]} == {NEEDS_A_DIGEST}
