"""Each kind of address, against a server that speaks like the real one."""

import json

import pytest
from conftest import FILES

from aibrix_operator.artifacts import errors
from aibrix_operator.artifacts.fetching import Progress, fetch
from aibrix_operator.artifacts.source import redacted, safe_path


def held(folder):
    """Path → content of the artifact's files."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".aibrix"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


async def test_a_repository_is_fetched_at_one_commit_with_the_token(hub, tmp_path):
    steps = []
    await fetch(
        "hf://org/name", tmp_path, {"huggingface_token": "t0ken"}, environment=hub.environment, on_progress=steps.append
    )
    assert held(tmp_path) == FILES
    assert {authorization for *_, authorization in hub.asked} == {"Bearer t0ken"}
    # Files are fetched side by side, so that either may be asked for first.
    assert sorted(path for _, path, *_ in hub.asked if "resolve" in path) == [
        f"/org/name/resolve/{hub.sha}/{path}" for path in sorted(FILES)
    ]
    total = sum(map(len, FILES.values()))
    assert (steps[0], steps[-1]) == (Progress(0, total, 2), Progress(total, total, 2))


async def test_objects_below_a_prefix_are_fetched_with_signed_calls(bucket, tmp_path):
    bucket.files |= {"team/sql/empty": b"", "team/sql/weights/": b"", "team/sqlite/other": b"x"}
    await fetch("s3://adapters/team/sql", tmp_path, bucket.credentials)
    assert held(tmp_path) == FILES | {"empty": b""}
    assert all(
        "Credential=AKIDEXAMPLE/" in authorization and "/eu-1/s3/" in authorization
        for *_, authorization in bucket.asked
    )


async def test_a_session_token_is_sent(bucket, tmp_path):
    await fetch("s3://adapters/team/sql", tmp_path, {**bucket.credentials, "aws_session_token": "sess"})
    assert all("x-amz-security-token" in authorization for *_, authorization in bucket.asked)


async def test_one_object_is_fetched_by_its_name(bucket, tmp_path):
    await fetch("s3://adapters/team/sql/adapter_config.json", tmp_path, bucket.credentials)
    assert held(tmp_path) == {"adapter_config.json": FILES["adapter_config.json"]}


async def test_google_buckets_are_fetched(bucket, tmp_path):
    account = {"gcs_base_url": bucket.credentials["aws_endpoint_url"], "disable_oauth": True}
    account |= {"client_email": "", "private_key": "", "private_key_id": ""}
    await fetch("gcs://adapters/team/sql", tmp_path, {"gcp_service_account_json": json.dumps(account)})
    assert held(tmp_path) == FILES


async def test_tos_is_fetched_through_its_s3_interface(bucket, tmp_path):
    keys = {"TOS_ACCESS_KEY": "AKTOS", "TOS_SECRET_KEY": "s", "TOS_SESSION_KEY": "q", "TOS_REGION": "cn-x"}
    await fetch("tos://adapters/team/sql", tmp_path, {**keys, "TOS_ENDPOINT": bucket.credentials["aws_endpoint_url"]})
    assert held(tmp_path) == FILES
    assert all(
        "Credential=AKTOS/" in authorization and "/cn-x/s3/" in authorization for *_, authorization in bucket.asked
    )


async def test_tos_without_keys_is_refused_before_any_call(tmp_path):
    with pytest.raises(errors.NotAllowedError, match="TOS_ACCESS_KEY"):
        await fetch("tos://adapters/a", tmp_path, {}, environment={})


async def test_one_file_of_a_web_server_is_fetched(web_server, tmp_path):
    await fetch(web_server.url, tmp_path, {"authorization": "Basic abc"})
    assert held(tmp_path) == {"adapter.bin": web_server.files["adapter.bin"]}
    assert {authorization for *_, authorization in web_server.asked} == {"Basic abc"}


async def test_a_server_without_head_is_fetched_from(start, tmp_path):
    from artifact_servers import WebServer

    shelf = WebServer({"a.bin": b"x" * 5000})
    shelf.knows_head = False
    await fetch(await start(shelf) + "/files/a.bin", tmp_path)
    assert held(tmp_path) == {"a.bin": b"x" * 5000}


async def test_a_folder_of_this_machine_is_copied(tmp_path):
    source = tmp_path / "source"
    (source / "weights").mkdir(parents=True)
    for name, content in FILES.items():
        (source / name).write_bytes(content)
    await fetch(str(source), tmp_path / "target")
    assert held(tmp_path / "target") == FILES
    await fetch(str(source / "adapter_config.json"), tmp_path / "single")
    assert held(tmp_path / "single") == {"adapter_config.json": FILES["adapter_config.json"]}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.NotAllowedError),
        (403, errors.NotAllowedError),
        (404, errors.NotFoundError),
        (500, errors.UnreachableError),
    ],
)
async def test_a_refusing_hub_is_told_by_its_kind(hub, tmp_path, status, kind):
    hub.status = status
    with pytest.raises(kind, match="org/name"):
        await fetch("hf://org/name", tmp_path, environment=hub.environment)


@pytest.mark.parametrize(
    ("status", "kind"), [(403, errors.NotAllowedError), (404, errors.NotFoundError), (400, errors.UnreachableError)]
)
async def test_a_refusing_bucket_is_told_by_its_kind_and_shows_no_secret(bucket, tmp_path, status, kind):
    bucket.status = status
    with pytest.raises(kind, match="s3://adapters/team/sql") as caught:
        await fetch("s3://adapters/team/sql", tmp_path, bucket.credentials)
    assert "very-secret-value" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"), [(403, errors.NotAllowedError), (410, errors.NotFoundError), (502, errors.UnreachableError)]
)
async def test_a_refusing_web_server_is_told_by_its_kind(web_server, tmp_path, status, kind):
    web_server.status = status
    with pytest.raises(kind, match="adapter"):
        await fetch(web_server.url + "?signature=s3cret", tmp_path)


async def test_an_empty_prefix_is_not_there(bucket, tmp_path):
    with pytest.raises(errors.NotFoundError, match="no objects"):
        await fetch("s3://adapters/nothing", tmp_path, bucket.credentials)
    assert not held(tmp_path)


async def test_an_empty_repository_is_not_there(hub, tmp_path):
    hub.files = {}
    with pytest.raises(errors.NotFoundError, match="no files"):
        await fetch("hf://org/name", tmp_path, environment=hub.environment)


async def test_nobody_at_the_address_is_told(tmp_path):
    with pytest.raises(errors.UnreachableError, match="127"):
        await fetch("http://127.0.0.1:9/a.bin?signature=s3cret", tmp_path)


async def test_credentials_that_cannot_be_read_are_told_without_them(tmp_path):
    with pytest.raises(errors.NotAllowedError, match="cannot be read") as caught:
        await fetch("gcs://adapters/a", tmp_path, {"gcp_service_account_json": '{"private_key": "pssst"'})
    assert "pssst" not in str(caught.value)


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir()], ids=["absent", "empty"])
async def test_a_path_without_files_is_not_there(tmp_path, make):
    make(tmp_path / "source")
    with pytest.raises(errors.NotFoundError, match=r"is not there|has no files"):
        await fetch(str(tmp_path / "source"), tmp_path / "target")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a\\b", "a\nb"])
def test_a_file_that_would_leave_its_folder_is_refused(path):
    with pytest.raises(errors.AddressError):
        safe_path(path)


async def test_a_hub_that_names_files_elsewhere_writes_nothing(hub, tmp_path):
    hub.files = {"../evil": b"x"}
    with pytest.raises(errors.AddressError, match="evil"):
        await fetch("hf://org/name", tmp_path / "in", environment=hub.environment)
    assert not (tmp_path / "evil").exists()


def test_texts_lose_credentials_and_length():
    assert redacted("key=abc\nkey=abcdef", {"a": "abc", "b": "abcdef", "c": ""}) == "key=*** key=***"
    assert len(redacted("x" * 900, {})) == 400
