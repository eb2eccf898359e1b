"""Where Helm and CoreDNS come from, in which order."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from aibrix_operator.sandbox import tools
from aibrix_operator.sandbox.building import BuildError


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    """No place has anything, whatever the machine of this test has."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("AIBRIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AIBRIX_PREBUILT_DIR", str(tmp_path / "prebuilt"))


def put(folder: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return folder / name


def put_archive(tmp_path: Path, *names: str) -> None:
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    with tarfile.open(folder / tools.ARCHIVE, "w:xz") as archive:
        for name in names:
            archive.add(put(tmp_path / "source", name, f"prebuilt {name}"), name)


def test_path_comes_first(tmp_path):
    put_archive(tmp_path, "helm")
    there = put(tmp_path / "path", "helm")
    assert tools.find_tool(tools.HELM) == there


def test_an_archive_is_unpacked_once(tmp_path):
    put_archive(tmp_path, "helm", "coredns")
    said: list[str] = []
    found = tools.find_tool(tools.COREDNS, said.append)
    assert found.read_text() == "prebuilt coredns"
    assert tools.find_tool(tools.COREDNS, said.append) == found
    assert said == [f"unpacking coredns from {tmp_path / 'prebuilt' / tools.ARCHIVE}"]


@pytest.mark.parametrize("in_archive", [(), ("helm",)], ids=["no-archive", "an-archive-without-it"])
def test_without_go_the_error_names_what_is_missing(tmp_path, in_archive):
    if in_archive:
        put_archive(tmp_path, *in_archive)
    with pytest.raises(BuildError, match="coredns was not found on PATH, and Go is not installed"):
        tools.find_tool(tools.COREDNS)


def test_what_go_says_is_in_the_error(tmp_path):
    put(tmp_path / "path", "go", "#!/bin/sh\necho no such module >&2\nexit 3\n")
    with pytest.raises(BuildError, match="status 3: no such module"):
        tools.find_tool(tools.HELM)


def test_a_build_is_kept_for_the_next_time(tmp_path):
    put(tmp_path / "path", "go", '#!/bin/sh\necho "built $5" > "$GOBIN/helm"\n')
    found = tools.find_tool(tools.HELM)
    assert found.read_text().startswith("built helm.sh/helm/v3/cmd/helm@")
    (tmp_path / "path/go").unlink()
    assert tools.find_tool(tools.HELM) == found
