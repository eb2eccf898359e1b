"""What the kind provider asks of ``kind`` and ``docker``, played by scripts that note how they were called."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.nodes import kind, local, provider, tools_image

KUBECONFIG = {
    "clusters": [{"name": "kind", "cluster": {"server": "https://127.0.0.1:6443"}}],
    "users": [{"name": "kind", "user": {"client-certificate-data": "eA=="}}],
}
KIND = """#!/bin/sh
echo "kind $@" >> {calls}
case "$1 $2" in
  "get clusters") cat {clusters} ;;
  "get nodes") printf 'c-worker2\\nc-control-plane\\nc-worker\\n' ;;
  "create cluster")
    while [ "$1" != --kubeconfig ]; do shift; done
    cp {kubeconfig} "$2"
    exit {create} ;;
esac
"""
DOCKER = """#!/bin/sh
echo "docker $@" >> {calls}
case "$1 $*" in
  info*) exit {info} ;;
  inspect*) echo 172.18.0.3 ;;
  *"create token"*) echo a-token ;;
esac
"""


class Programs:
    """The two programs on a PATH of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "clusters").touch()
        (folder / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))
        self.put()

    def put(self, *, create: int = 0, info: int = 0) -> None:
        words = {name: self.folder / name for name in ("calls", "clusters", "kubeconfig")}
        for name, text in (("kind", KIND), ("docker", DOCKER), ("busybox", "#!/bin/sh\n")):
            program = self.folder / "bin" / name
            program.write_text(text.format(create=create, info=info, **words))
            program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(tools_image, "write", lambda target: target.touch())
    monkeypatch.setattr(kind.tempfile, "tempdir", str(tmp_path))
    return made


def test_a_cluster_has_a_worker_for_each_name_and_a_token_and_is_deleted(programs: Programs):
    made = provider.start(("node-a", "node-b"))

    shape = yaml.safe_load((made.kubeconfig.parent / "kind.yaml").read_text())
    assert [node["role"] for node in shape["nodes"]] == ["control-plane", "worker", "worker"]
    assert (made.nodes, made.node_address) == (["c-worker", "c-worker2"], "172.18.0.3")
    (user,) = yaml.safe_load(made.kubeconfig.read_text())["users"]
    assert user["user"] == {"token": "a-token"}
    assert f"kind load image-archive {made.kubeconfig.parent / 'tools.tar'} --name {made.name}" in programs.calls

    made.stop()
    assert programs.calls[-1] == f"kind delete cluster --name {made.name}"
    assert not made.kubeconfig.parent.exists()


def test_a_cluster_that_does_not_start_is_deleted_again(programs: Programs):
    programs.put(create=1)
    with pytest.raises(kind.KindError, match="kind create cluster"):
        kind.start(("node-a",))
    assert programs.calls[-1].startswith("kind delete cluster --name aibrix-e2e-")
    assert not list(programs.folder.glob("aibrix-e2e-*"))


def test_only_clusters_of_runs_that_are_over_are_deleted(programs: Programs):
    gone = 2**22 + 1  # above the kernel's highest number of a process
    (programs.folder / "clusters").write_text(f"kind\naibrix-e2e-{gone}\naibrix-e2e-1\n")
    kind.remove_leftovers()
    assert [call for call in programs.calls if "delete" in call] == [f"kind delete cluster --name aibrix-e2e-{gone}"]


def test_without_docker_the_machines_own_kernel_is_asked_and_both_reasons_are_told(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
):
    programs.put(info=1)
    monkeypatch.setattr(local, "why_not", lambda: "local nodes need root")
    with pytest.raises(provider.NoNodesError, match=r"`docker info` fails; local nodes need root"):
        provider.start(("node-a",))


def test_a_missing_program_is_named(programs: Programs):
    (programs.folder / "bin/kind").unlink()
    assert kind.why_not() == "kind needs kind, which is not on PATH"
