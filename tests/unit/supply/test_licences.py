"""Licences of what we bring along."""

from email.message import Message

import pytest

from supply import licences

LOCK = """
aiohttp==3.13.2 \\
    --hash=sha256:00
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:11
yarl==1.22 ; python_version >= '3' \\
    --hash=sha256:22
    # via aiohttp
"""


def test_packages_of_other_systems_are_left_out():
    assert list(licences.locked(LOCK)) == [("aiohttp", "3.13.2"), ("yarl", "1.22")]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("MPL-2.0 AND (Apache-2.0 OR GPL-3.0-only)", True),
        ("(MIT AND GPL-3.0-only) OR ISC", True),
        ("AGPL-3.0-only", False),
        ("", False),
        ("MIT AND", False),
        ("MIT ISC", False),
    ],
)
def test_an_expression_is_allowed_by_its_parts(expression, allowed):
    assert licences.is_allowed(expression) is allowed


def described(**rows):
    message = Message()
    for name, value in rows.items():
        for each in value if isinstance(value, list) else [value]:
            message[name.replace("_", "-")] = each
    return message


@pytest.mark.parametrize(
    ("found", "licence"),
    [
        (described(License_Expression="MIT", License="GPL"), "MIT"),
        (described(License="BSD License"), "BSD-3-Clause"),
        (described(License="Permission is\nhereby", Classifier=["License :: OSI Approved :: MIT License"]), "MIT"),
        (described(Classifier=["Framework :: AsyncIO"]), ""),
    ],
    ids=["the expression first", "older words", "classifiers in the place of a whole text", "none"],
)
def test_a_licence_is_read_from_whatever_says_it(found, licence):
    assert licences.licence_of(found) == licence


def test_all_that_is_locked_may_be_passed_on(capsys):
    assert licences.main() == 0, capsys.readouterr().err
    assert "all allowed" in capsys.readouterr().out


def test_a_package_with_another_licence_is_named(monkeypatch, capsys, tmp_path):
    lock = tmp_path / "lock"
    lock.write_text("rich==1 \\\nno-such-package==1 \\\n")
    monkeypatch.setattr(licences, "LOCK", lock)
    monkeypatch.setattr(licences, "ALLOWED", frozenset({"ISC"}))
    assert licences.main() == 1
    assert capsys.readouterr().err.splitlines() == [
        "licence not allowed: rich: MIT",
        "licence not allowed: no-such-package: not installed here, so its licence is not known",
    ]


def test_a_lock_that_cannot_be_read_is_no_clean_one(monkeypatch, tmp_path):
    monkeypatch.setattr(licences, "LOCK", tmp_path / "lock")
    (tmp_path / "lock").write_text("rich>=1\n")
    assert licences.main() == 1
