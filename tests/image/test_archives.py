"""The archive that container runtimes import: one layer, named by what it holds."""

import hashlib
import io
import json
import os
import tarfile

import pytest

from image import archive


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0::/:\n")
    (root / "bin").symlink_to("usr/bin")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    return root


IMAGE = archive.Image(
    "name:1.0", entrypoint=["/run"], command=["x"], environment={"A": "b"}, user=65532, labels={"l": "m"}
)


def test_the_manifest_leads_to_configuration_and_layer_by_their_digests(root, tmp_path):
    archive.write(root, IMAGE, tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as tar:
        (manifest,) = json.loads(tar.extractfile("manifest.json").read())
        assert manifest["RepoTags"] == ["name:1.0"]
        config = tar.extractfile(manifest["Config"]).read()
        assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
        (layer,) = (tar.extractfile(name).read() for name in manifest["Layers"])
    said = json.loads(config)
    assert said["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert said["config"]["User"] == "65532"
    assert (said["config"]["Entrypoint"], said["config"]["Env"]) == (["/run"], ["A=b"])
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        members = {member.name: member for member in tar}
    assert set(members) == {"etc", "etc/passwd", "bin", "tmp"}
    assert members["bin"].linkname == "usr/bin"
    assert members["tmp"].mode == 0o1777
    assert {(member.uid, member.gid, member.uname) for member in members.values()} == {(0, 0, "")}


def test_equal_folders_make_equal_bytes_whenever_they_were_made(root, tmp_path):
    archive.write(root, IMAGE, tmp_path / "one.tar")
    os.utime(root / "etc/passwd", (1, 1))
    archive.write(root, IMAGE, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    archive.write(root, IMAGE, tmp_path / "three.tar")
    assert (tmp_path / "one.tar").read_bytes() != (tmp_path / "three.tar").read_bytes()


def test_a_failed_write_leaves_the_archive_of_before_and_no_scratch(root, tmp_path):
    into = tmp_path / "out" / "image.tar"
    into.parent.mkdir()
    archive.write(root, IMAGE, into)
    before = into.read_bytes()
    unwritable = archive.Image("n", entrypoint=[object()], command=[], environment={}, user=1, labels={})
    with pytest.raises(TypeError):
        archive.write(root, unwritable, into)
    assert [path.name for path in into.parent.iterdir()] == ["image.tar"]
    assert into.read_bytes() == before
