"""The ``fetch`` command: what comes into the node's cache, its last word, and whether another try can help."""

import asyncio
import fcntl
import json
import os
import shutil
from collections import namedtuple

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from aibrix_operator import cli
from aibrix_operator.artifacts import fetching as artifact_fetching
from aibrix_operator.modelwarmup import fetching
from aibrix_operator.modelwarmup.job import GIVE_UP_STATUS
from aibrix_operator.modelwarmup.observe import slim_pod
from aibrix_operator.modelwarmup.snapshot import Report

GIVES_UP, TRIES_AGAIN = GIVE_UP_STATUS, fetching.RETRY_STATUS


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "weights.safetensors").write_bytes(b"w" * 5000)
    return folder


def said(report):
    return json.loads(report.read_text())


async def test_the_files_come_and_their_bytes_are_the_last_word(model, tmp_path):
    cache, report = tmp_path / "cache" / "org" / "name", tmp_path / "report"
    for _ in range(2):  # the second finds it there
        status, _ = await fetching.fetch(str(model), cache, None, report)
        assert (status, said(report)) == (0, {"bytes": 5002})
    assert (cache / "weights.safetensors").read_bytes() == b"w" * 5000


async def test_a_disk_that_cannot_hold_it_is_told_before_a_byte_is_written(model, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(artifact_fetching.shutil, "disk_usage", lambda path: usage(10**6, 0, 4000))
    report = tmp_path / "report"
    status, _ = await fetching.fetch(str(model), tmp_path / "cache", None, report)
    assert (status, said(report)["reason"], said(report)["bytes"]) == (GIVES_UP, "NoRoom", 0)
    assert "4000 free" in said(report)["message"]
    assert not (tmp_path / "cache" / "weights.safetensors").exists()


@pytest.mark.parametrize(
    ("status", "expected", "reason"),
    [(404, GIVES_UP, "ArtifactNotFound"), (403, GIVES_UP, "ArtifactNotAllowed"), (503, TRIES_AGAIN, "Unreachable")],
)
async def test_what_the_other_end_says_decides_whether_another_try_can_help(
    status, expected, reason, tmp_path, monkeypatch
):
    monkeypatch.setattr(artifact_fetching, "_FIRST_PAUSE_S", 0.0)
    secrets = tmp_path / "secret"
    secrets.mkdir()
    (secrets / "authorization").write_text("Bearer hush-hush\n")
    (secrets / "..data").mkdir()
    seen = []

    async def answer(request):
        seen.append(request.headers.get("Authorization"))
        raise web.HTTPException(text=f"no, {seen[-1]}") if status < 400 else _answer(status, f"no, {seen[-1]}")

    app = web.Application()
    app.router.add_route("*", "/{name:.*}", answer)
    report = tmp_path / "report"
    async with TestServer(app) as server:
        url = str(server.make_url("/weights.bin"))
        ended, text = await fetching.fetch(url, tmp_path / "cache", secrets, report)
    assert (ended, said(report)["reason"]) == (expected, reason)
    assert seen[0] == "Bearer hush-hush"
    assert "hush" not in text + report.read_text()


def _answer(status, text):
    return {404: web.HTTPNotFound, 403: web.HTTPForbidden, 503: web.HTTPServiceUnavailable}[status](text=text)


async def test_two_fetches_of_one_folder_wait_for_each_other(model, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_LOCK_POLL_S", 0.001)
    lock = os.open(tmp_path / ".cache.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    was_refused, take = asyncio.Event(), fetching._is_locked

    def take_and_tell(lock):
        is_taken = take(lock)
        if not is_taken:
            was_refused.set()
        return is_taken

    monkeypatch.setattr(fetching, "_is_locked", take_and_tell)
    waiting = asyncio.create_task(fetching.fetch(str(model), tmp_path / "cache", None, None))
    await was_refused.wait()
    assert not (tmp_path / "cache").exists()
    os.close(lock)
    assert (await waiting)[0] == 0


async def test_a_cache_that_cannot_be_written_is_said(model, tmp_path):
    (tmp_path / "file").write_text("")
    ended, text = await fetching.fetch(str(model), tmp_path / "file" / "cache", None, None)
    assert (ended, text.partition(":")[0]) == (TRIES_AGAIN, "FolderNotWritable")


def test_the_command_ends_with_the_status_and_the_report_comes_back_from_the_pod(model, tmp_path):
    report = tmp_path / "report"
    done = CliRunner().invoke(cli.app, ["fetch", str(model), str(tmp_path / "cache"), "--report", str(report)])
    assert done.exit_code == 0
    pod = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}, "status": {"containerStatuses": []}}
    ended = {"terminated": {"exitCode": 0, "message": report.read_text()}}
    pod["status"]["containerStatuses"] += [
        {"name": "weights-0", "state": ended},
        {"name": "other", "state": {"terminated": {"message": "ended by itself"}}},
        {"name": "running", "state": {"running": {}}},
    ]
    assert slim_pod(pod)["reports"] == {"weights-0": Report(5002)}
    shutil.rmtree(model)
    failed = CliRunner().invoke(cli.app, ["fetch", str(model), str(tmp_path / "another"), "--report", str(report)])
    assert failed.exit_code == GIVES_UP
    assert said(report)["reason"] == "ArtifactNotFound"
