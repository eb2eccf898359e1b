"""Where the control plane's programs come from, in which order, and what an installation leaves."""

from __future__ import annotations

import tarfile
import threading
from pathlib import Path

import pytest

from aibrix_operator.sandbox import binaries, building

NAMES = ("etcd", "kube-apiserver")


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    """No place has anything, whatever the machine of this test has."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("AIBRIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AIBRIX_PREBUILT_DIR", str(tmp_path / "prebuilt"))


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def put_archive(folder: Path, *names: str) -> None:
    source = put(folder / "source", *names)
    with tarfile.open(folder / binaries.ARCHIVE, "w:xz") as archive:
        for name in names:
            archive.add(source / name, name)


def test_the_assets_folder_wins_over_path_and_path_over_the_cache(monkeypatch, tmp_path):
    cache = put(binaries.cache_folder(), *NAMES)
    assert binaries.look_up(NAMES) == {name: cache / name for name in NAMES}
    path = put(tmp_path / "path", *NAMES)
    assert binaries.look_up(NAMES) == {name: path / name for name in NAMES}
    assets = put(tmp_path / "assets", *NAMES)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert binaries.look_up(NAMES) == {name: assets / name for name in NAMES}


def test_programs_of_two_places_are_never_mixed(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(put(tmp_path / "assets", "etcd")))
    put(tmp_path / "path", "kube-apiserver")
    assert binaries.look_up(NAMES) is None


def test_a_file_that_cannot_be_run_is_no_program(tmp_path):
    path = put(tmp_path / "path", *NAMES)
    (path / "etcd").chmod(0o644)
    assert binaries.look_up(NAMES) is None


def test_the_users_cache_is_where_xdg_says(monkeypatch, tmp_path):
    monkeypatch.delenv("AIBRIX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert binaries.cache_root() == tmp_path / "xdg" / "aibrix-operator"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert binaries.cache_root() == tmp_path / "home" / ".cache" / "aibrix-operator"


def test_an_archive_is_unpacked_once_with_a_link_for_each_component(tmp_path):
    put_archive(tmp_path / "prebuilt", "kubecp", "etcd")
    said: list[str] = []

    found = binaries.find_binaries(report=said.append)

    assert set(found) == set(binaries.CONTROL_PLANE)
    assert found["kube-scheduler"].readlink() == Path("kubecp")
    assert said == [f"unpacking {tmp_path / 'prebuilt' / binaries.ARCHIVE}"]
    (tmp_path / "prebuilt" / binaries.ARCHIVE).unlink()
    assert binaries.find_binaries(report=said.append) == found
    assert len(said) == 1


def test_an_archive_that_lacks_a_program_leaves_the_cache_as_it_was(tmp_path):
    put_archive(tmp_path / "prebuilt", "kubecp")
    with pytest.raises(building.BuildError, match="lacks etcd"):
        binaries.find_binaries()
    assert [entry.name for entry in binaries.cache_folder().parent.iterdir() if entry.is_dir()] == []


def test_an_incomplete_cache_is_made_anew(tmp_path):
    put(binaries.cache_folder(), "etcd")
    put_archive(tmp_path / "prebuilt", "kubecp", "etcd")
    assert binaries.find_binaries()["kube-apiserver"].is_file()


def test_two_that_install_at_once_unpack_once(monkeypatch, tmp_path):
    put_archive(tmp_path / "prebuilt", "kubecp", "etcd")
    first_unpacks, second_waits = threading.Event(), threading.Event()
    said: list[str] = []

    def report(line: str) -> None:
        said.append(line)
        if line.startswith("unpacking"):
            first_unpacks.set()
            assert second_waits.wait(10)
        else:
            second_waits.set()

    first = threading.Thread(target=binaries.install, args=(report,))
    first.start()
    assert first_unpacks.wait(10)
    binaries.install(report)
    first.join()

    assert [line.split()[0] for line in said] == ["unpacking", "another"]
    assert binaries.look_up() is not None


def test_without_go_the_error_says_what_to_install():
    with pytest.raises(building.BuildError, match=r"Go is not installed.*Go 1\.26.*KUBEBUILDER_ASSETS"):
        binaries.find_binaries()


def test_a_build_makes_both_programs_from_the_pinned_modules(tmp_path):
    """With a Go that writes what it was asked for instead of compiling for minutes."""
    go = put(tmp_path / "path", "go") / "go"
    go.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != "-o" ]; do case "$1" in -X*|-s*) flags="$1";; esac; shift; done\n'
        '{ /bin/head -n 1 go.mod; echo "$CGO_ENABLED $flags $3"; } > "$2"; /bin/chmod +x "$2"\n'
    )
    said: list[str] = []

    found = binaries.find_binaries(report=said.append)

    assert found["etcd"].read_text().splitlines() == ["module etcdbuild", "0 -s -w go.etcd.io/etcd/server/v3"]
    module, flags = found["kube-apiserver"].read_text().splitlines()
    assert module == "module kubecp"
    assert f"-X k8s.io/component-base/version.gitVersion={building.KUBERNETES_VERSION} " in flags
    assert ["about" in line for line in said] == [True, True]


def test_a_failed_build_quotes_the_end_of_what_go_said_and_installs_nothing(tmp_path):
    (put(tmp_path / "path", "go") / "go").write_text("#!/bin/sh\necho 'disk full' >&2\nexit 1\n")
    with pytest.raises(building.BuildError, match="go build of etcd failed with status 1: disk full"):
        binaries.find_binaries()
    assert not binaries.cache_folder().exists()


@pytest.mark.parametrize(
    ("module", "version"), [("etcd", building.ETCD_VERSION), ("kubernetes", building.KUBERNETES_VERSION)]
)
def test_the_pinned_modules_are_those_the_cache_folder_is_named_after(module, version):
    folder = Path(building.__file__).with_name("control_plane_build") / module
    name = "go.etcd.io/etcd/server/v3" if module == "etcd" else "k8s.io/kubernetes"
    assert f"{name} {version}" in (folder / "go.mod").read_text()
    assert f"{name} {version} h1:" in (folder / "go.sum").read_text()
