"""Resume, completion, changes in between, and the disk."""

import errno
import shutil

import pytest
from conftest import FILES
from test_fetching_from_each_origin import held

from aibrix_operator.artifacts import book, errors, fetching
from aibrix_operator.artifacts.fetching import fetch

BIG = "weights/adapter_model.safetensors"


async def test_a_complete_folder_is_taken_as_it_is(hub, tmp_path):
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    asked = len(hub.asked)
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert len(hub.asked) == asked


async def test_another_address_replaces_the_files_of_the_first(hub, bucket, tmp_path):
    (tmp_path / "mine.txt").write_text("not of the artifact")
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    bucket.files = {"team/sql/adapter_config.json": b"{}"}
    await fetch("s3://adapters/team/sql", tmp_path, bucket.credentials)
    assert held(tmp_path) == {"adapter_config.json": b"{}", "mine.txt": b"not of the artifact"}
    assert not (tmp_path / "weights").exists()


async def test_an_answer_that_ends_early_is_asked_for_the_rest(hub, tmp_path):
    hub.files = {"a.bin": b"0123456789" * 300}
    hub.cut_after = [1000, 500]
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert held(tmp_path) == hub.files
    assert [wanted for _, _, wanted, _ in hub.gets("a.bin")] == [None, "bytes=1000-", "bytes=1500-"]


async def test_a_server_that_ignores_ranges_sends_nothing_twice(hub, tmp_path):
    hub.files = {"a.bin": b"0123456789" * 300}
    hub.cut_after, hub.ignores_ranges = [1000], True
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert held(tmp_path) == hub.files


async def test_tries_without_progress_end(hub, tmp_path):
    hub.files = {"a.bin": b"x" * 100}
    hub.cut_after = [0] * 50
    with pytest.raises(errors.UnreachableError, match=r"a\.bin"):
        await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert len(hub.gets("a.bin")) == fetching.TRIES_WITHOUT_PROGRESS
    assert not book.is_complete(tmp_path, "hf://org/name")


async def test_the_next_fetch_goes_on_from_what_a_cut_one_left(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "TRIES_WITHOUT_PROGRESS", 1)
    hub.files = {"a.bin": b"0123456789" * 300, "done.bin": b"y"}
    hub.cut_after = [1200, 1200]
    with pytest.raises(errors.UnreachableError):
        await fetch("hf://org/name", tmp_path, environment=hub.environment)
    hub.cut_after, hub.asked = [], []
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert held(tmp_path) == hub.files
    assert [wanted for _, _, wanted, _ in hub.gets("a.bin")] == ["bytes=1200-"]


async def test_what_was_begun_of_an_older_version_is_not_gone_on_with(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "TRIES_WITHOUT_PROGRESS", 1)
    hub.files = {"a.bin": b"0" * 3000}
    hub.cut_after = [1200]
    with pytest.raises(errors.UnreachableError):
        await fetch("hf://org/name", tmp_path, environment=hub.environment)
    hub.files = {"a.bin": b"1" * 3000}
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert held(tmp_path) == hub.files


async def test_a_file_of_unknown_content_in_the_way_is_replaced(hub, tmp_path):
    (tmp_path / "adapter_config.json").write_bytes(b'{"r": 9}')  # as long as the right one
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert held(tmp_path) == FILES


async def test_an_empty_marker_of_another_tool_is_not_believed(hub, tmp_path):
    (tmp_path / book.MARKER).touch()
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert held(tmp_path) == FILES


@pytest.mark.parametrize("text", ["", "[]", "{", '{"url": 1}', '{"url": "u", "versions": []}'])
async def test_a_broken_book_is_as_none(hub, tmp_path, text):
    (tmp_path / book.BOOK).write_text(text)
    await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert held(tmp_path) == FILES


async def test_an_object_that_changes_in_between_is_told(bucket, tmp_path, monkeypatch):
    prepare = fetching._Fetch._prepare

    def prepare_and_change(self):
        prepare(self)
        bucket.files[f"team/sql/{BIG}"] = b"another"

    monkeypatch.setattr(fetching._Fetch, "_prepare", prepare_and_change)
    with pytest.raises(errors.ChangedError, match="changed"):
        await fetch("s3://adapters/team/sql", tmp_path, bucket.credentials)
    monkeypatch.undo()
    await fetch("s3://adapters/team/sql", tmp_path, bucket.credentials)
    assert held(tmp_path)[BIG] == b"another"


async def test_an_object_is_gone_on_with(bucket, tmp_path):
    url = "s3://adapters/team/sql"
    await fetch(url, tmp_path, bucket.credentials)
    target = tmp_path / BIG
    book.part_of(target).write_bytes(target.read_bytes()[:77])
    target.unlink()
    book.remove_marker(tmp_path)
    bucket.asked = []
    await fetch(url, tmp_path, bucket.credentials)
    assert held(tmp_path) == FILES
    assert [wanted for _, _, wanted, _ in bucket.gets(BIG)] == [f"bytes=77-{len(FILES[BIG]) - 1}"]
    assert not bucket.gets("adapter_config.json")


async def test_a_whole_part_needs_no_call(bucket, tmp_path):
    url = "s3://adapters/team/sql"
    await fetch(url, tmp_path, bucket.credentials)
    (tmp_path / BIG).rename(book.part_of(tmp_path / BIG))
    book.remove_marker(tmp_path)
    bucket.asked = []
    await fetch(url, tmp_path, bucket.credentials)
    assert held(tmp_path) == FILES
    assert not bucket.gets(BIG)


async def test_a_web_file_that_changed_is_told(web_server, tmp_path, monkeypatch):
    prepare = fetching._Fetch._prepare

    def prepare_and_change(self):
        prepare(self)
        web_server.files["adapter.bin"] = b"another"

    monkeypatch.setattr(fetching._Fetch, "_prepare", prepare_and_change)
    with pytest.raises(errors.ChangedError):
        await fetch(web_server.url, tmp_path)


async def test_a_web_file_shorter_than_its_part_is_told(start, tmp_path):
    from artifact_servers import WebServer

    shelf = WebServer({"a.bin": b"x" * 100})
    shelf.knows_head = False
    url = await start(shelf) + "/files/a.bin"
    book.write_book(tmp_path, book.Book(url, {"a.bin": ""}))
    book.part_of(tmp_path / "a.bin").write_bytes(b"y" * 500)
    await fetch(url, tmp_path)  # without a version nothing is gone on with
    assert held(tmp_path) == {"a.bin": b"x" * 100}


async def test_a_disk_that_cannot_hold_it_is_told_before_a_byte_is_fetched(hub, tmp_path, monkeypatch):
    usage = shutil._ntuple_diskusage(total=10**9, used=0, free=fetching.RESERVE_BYTES + 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(errors.NoRoomError, match=f"needs {sum(map(len, FILES.values()))} more bytes") as caught:
        await fetch("hf://org/name", tmp_path, environment=hub.environment)
    assert caught.value.is_worth_retrying
    assert not [path for _, path, *_ in hub.asked if "resolve" in path]


async def test_a_disk_that_fills_on_the_way_is_told(hub, tmp_path, monkeypatch):
    def full(part, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetching, "_finish", full)
    with pytest.raises(errors.NoRoomError, match="No space left"):
        await fetch("hf://org/name", tmp_path, environment=hub.environment)


async def test_a_folder_that_cannot_be_made_is_told(hub, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(errors.FolderError, match="Not a directory"):
        await fetch("hf://org/name", tmp_path / "file" / "below", environment=hub.environment)
