"""The image's root: what runs in it, as its own user, and that there is nothing else to run."""

import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import aibrix_operator
from image import libraries, rootfs

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = ("typer", "rich", "pygments", "markdown-it-py", "mdurl", "shellingham", "typing-extensions", "annotated-doc")
"""What the command line imports before it runs anything; a compiled package beside it, for its libraries."""
COMPILED = "orjson"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Laid out with a few packages instead of all that are locked, which would take a minute."""
    site = tmp_path_factory.mktemp("packages") / "site"
    for name in (*NEEDED, COMPILED):
        for file in importlib.metadata.files(name) or ():
            source = Path(file.locate())
            if not file.parts[0].startswith("..") and source.suffix != ".pyc":
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, site / file)
    root = tmp_path_factory.mktemp("image") / "root"
    root.mkdir()
    parts = rootfs.Parts(site, CHECKOUT / "aibrix_operator", CHECKOUT / "crds", aibrix_operator.__version__)
    rootfs.lay_out(root, parts)
    return root


def run(root, *words):
    """In the root alone, as its user, with its environment."""
    if os.geteuid() != 0:
        pytest.skip("only root may change the root of a process")
    command = [shutil.which("chroot"), f"--userspec={rootfs.USER}:{rootfs.USER}", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=rootfs.ENVIRONMENT, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_command_runs_as_the_images_user(root):
    status, told = run(root, rootfs.COMMAND, "--help")
    assert status == 0, told
    assert "Let many language models share few GPUs" in told


def test_python_knows_its_user_its_packages_and_its_certificates(root):
    program = f"""
import getpass, importlib.metadata, pathlib, ssl, {COMPILED}
print(getpass.getuser(), importlib.metadata.version("aibrix-operator"))
print(len(ssl.create_default_context().get_ca_certs()) > 0, pathlib.Path({COMPILED}.__file__).parts[:3])
"""
    status, told = run(root, f"/usr/local/bin/{rootfs.PYTHON}", "-c", program)
    assert status == 0, told
    assert told.splitlines() == [f"nonroot {aibrix_operator.__version__}", "True ('/', 'usr', 'local')"]


def test_nothing_can_be_written_but_scratch(root):
    writable = [path for path in root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert writable == [root / "tmp"]


def test_there_is_no_shell_and_no_other_program(root):
    folders = [root / "usr/local/bin", *(root / name for name in ("bin", "sbin", "usr/bin", "usr/sbin"))]
    programs = [path.name for folder in folders if folder.exists() for path in folder.iterdir()]
    assert sorted(programs) == ["aibrix-operator", rootfs.PYTHON]


def test_modules_are_compiled_for_the_place_where_they_will_be(root):
    compiled = list((root / f"usr/local/lib/{rootfs.PYTHON}/site-packages/aibrix_operator").rglob("cli.*.pyc"))
    assert len(compiled) == 1
    assert b"/usr/local/lib/" in compiled[0].read_bytes()
    assert str(root).encode() not in compiled[0].read_bytes()


def test_the_dockerfile_makes_the_same_root_and_starts_it_the_same_way():
    text = (CHECKOUT / "Dockerfile").read_text()
    final = text.rpartition("FROM scratch")[2]
    assert "python -m image --site /site --root /rootfs" in text
    assert "COPY --from=build /rootfs /\n" in final
    assert f"USER {rootfs.USER}:{rootfs.USER}" in final
    assert f'ENTRYPOINT ["{rootfs.COMMAND}"]' in final
    said = dict(re.findall(r"([A-Z_]+)=(\S+)", re.sub(r"\\\n", " ", final.partition("ENV ")[2].partition("USER ")[0])))
    assert said == rootfs.ENVIRONMENT
    copied = re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)
    assert all((CHECKOUT / path).exists() for path in copied)
    bases = re.findall(r"^ARG \w+_IMAGE=(\S+)$", text, re.MULTILINE)
    assert all(re.search(r":v?\d+\.\d+\.\d+", base) for base in bases), "a base is pinned to its patch version"


def test_a_library_that_is_not_installed_is_named(monkeypatch, tmp_path):
    told = "\tlibc.so.6 => /lib/libc.so.6 (0x0)\n\tlibgone.so.1 => not found\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, told, ""))
    with pytest.raises(libraries.MissingLibraryError, match=r"libgone\.so\.1"):
        libraries.closure([tmp_path / "program"], tmp_path)


def test_libraries_that_come_along_are_not_looked_for_elsewhere(monkeypatch, tmp_path):
    own = tmp_path / "site" / "own.libs" / "libown.so"
    own.parent.mkdir(parents=True)
    own.touch()
    lines = [
        "linux-vdso.so.1 (0x0)",
        f"libown.so => {own} (0x0)",
        "libz.so.1 => /lib/libz.so.1 (0x0)",
        "/lib64/ld.so (0x0)",
    ]
    told = "".join(f"\t{line}\n" for line in lines)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, told, ""))
    found = libraries.closure([tmp_path / "program"], tmp_path)
    assert found == {"libz.so.1": Path("/lib/libz.so.1"), "/lib64/ld.so": Path("/lib64/ld.so")}
