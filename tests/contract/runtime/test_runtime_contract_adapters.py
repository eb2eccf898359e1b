"""Adapters through either sidecar: fetched into a folder, loaded into the engine beside, and taken away again."""

import json
from pathlib import Path

import pytest

LOAD, UNLOAD = "/v1/lora_adapter/load", "/v1/lora_adapter/unload"


@pytest.fixture
def adapter(sidecar):
    """A name of this test's own; whatever is left of it goes."""
    name = sidecar.own_name("lora").replace(".", "-")
    yield name
    sidecar.call("POST", UNLOAD, {"lora_name": name, "cleanup_local": True})


def load(sidecar, name, file="adapter_config.json", **more):
    url = f"{sidecar.engine.url}/files/{file}"
    return sidecar.call("POST", LOAD, {"lora_name": name, "artifact_url": url, **more})


def test_an_adapter_is_fetched_loaded_and_taken_away(sidecar, adapter):
    answer = load(sidecar, adapter)
    assert (answer.status, answer.body["status"]) == (200, "success"), answer.text
    folder = Path(answer.body["local_path"])
    assert json.loads((folder / "adapter_config.json").read_text()) == {"r": 8}
    assert (folder / ".aibrix_download_complete").exists()
    assert sidecar.engine.loaded[adapter] == str(folder)
    assert {"id": adapter} in sidecar.get("/v1/models").body["data"]
    answer = sidecar.call("POST", UNLOAD, {"lora_name": adapter, "cleanup_local": True})
    assert (answer.status, answer.body["status"], folder.exists()) == (200, "success", False)
    assert adapter not in sidecar.engine.loaded


def test_an_engine_that_lost_it_is_given_the_same_path_again(sidecar, adapter):
    first = load(sidecar, adapter).body["local_path"]
    sidecar.engine.loaded.clear()
    assert load(sidecar, adapter).body["local_path"] == first
    assert sidecar.engine.loaded[adapter] == first


def test_an_artifact_that_is_not_there_is_an_error(sidecar, adapter):
    answer = load(sidecar, adapter, file="nothing")
    assert (answer.status, set(answer.body)) == (500, {"error"})
    assert adapter not in sidecar.engine.loaded


def test_a_name_with_a_dot_is_an_error(sidecar):
    before = len(sidecar.engine.calls)
    answer = load(sidecar, "a.b")
    assert (answer.status, set(answer.body), len(sidecar.engine.calls)) == (500, {"error"}, before)


def test_unknown_fields_are_refused(sidecar, adapter):
    assert load(sidecar, adapter, surplus=1).status == 422
    assert sidecar.call("POST", UNLOAD, {"lora_name": adapter, "surplus": 1}).status == 422


def test_a_path_is_handed_on(sidecar, adapter):
    answer = sidecar.call("POST", LOAD, {"lora_name": adapter, "lora_path": "/mnt/sql"})
    assert (answer.status, sidecar.engine.loaded[adapter]) == (200, "/mnt/sql")


def test_unload_of_an_unknown_one_is_done(sidecar, adapter):
    assert sidecar.call("POST", UNLOAD, {"lora_name": adapter}).status == 200


@pytest.mark.only("ours")
def test_another_address_is_loaded_and_a_local_path_works(sidecar, adapter):
    load(sidecar, adapter)
    answer = sidecar.call("POST", LOAD, {"lora_name": adapter, "artifact_url": "/mnt/sql"})
    assert (answer.status, sidecar.engine.loaded[adapter]) == (200, "/mnt/sql")
