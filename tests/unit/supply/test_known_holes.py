"""Known holes: found, or visibly not looked for."""

import json
import stat

import pytest

from supply import audit

HOLE = {"id": "PYSEC-1", "fix_versions": ["2.0"], "aliases": [], "description": ""}
CLEAN = {"name": "a", "version": "1.0", "vulns": []}
HOLED = {"name": "b", "version": "1.0", "vulns": [HOLE]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.fixture
def pip_audit(tmp_path):
    """``pip_audit(text, status)``: a program that prints that."""

    def make(text, status=0, error=""):
        program = tmp_path / "pip-audit"
        (tmp_path / "out").write_text(text)
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/out\necho '{error}' >&2\nexit {status}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(program)

    return make


@pytest.mark.parametrize(
    ("rows", "lenient", "strict", "told"),
    [
        ([CLEAN], 0, 0, "audit: 1 packages, 0 known holes"),
        ([CLEAN, HOLED], 1, 1, "known hole: b 1.0: PYSEC-1, mended by 2.0"),
        ([CLEAN, SKIPPED], 0, 1, "audit: SKIPPED for 1 packages, 1 looked at: not found"),
        ([HOLED, SKIPPED], 1, 1, "known hole: b"),
    ],
    ids=["clean", "a hole", "one not looked at", "a hole beside one not looked at"],
)
def test_a_hole_fails_and_what_was_not_looked_at_fails_a_release(pip_audit, capsys, rows, lenient, strict, told):
    program = pip_audit(json.dumps({"dependencies": rows}), status=1)
    assert audit.main([program]) == lenient
    assert told in "".join(capsys.readouterr())
    assert audit.main([program, "--strict"]) == strict


def test_without_the_database_all_is_skipped_aloud(pip_audit, capsys):
    program = pip_audit("", status=1, error="ERROR: no network")
    assert audit.main([program]) == 0
    assert "SKIPPED for all packages, 0 looked at: ERROR: no network" in capsys.readouterr().out
    assert audit.main([program, "--strict"]) == 1


def test_without_the_program_all_is_skipped_aloud(tmp_path, capsys):
    assert audit.main([str(tmp_path / "none")]) == 0
    assert "SKIPPED for all" in capsys.readouterr().out
