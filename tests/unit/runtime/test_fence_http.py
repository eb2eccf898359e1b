"""The fence over HTTP: the header, its 409 and its 422."""

import pytest
from schemathesis.python import asgi

from aibrix_operator.api.term import TERM_HEADER
from aibrix_operator.runtime.app import create_app
from aibrix_operator.runtime.settings import RuntimeSettings

OLD, NEW = "2026-11-29T08:00:00Z/4", "2026-11-29T08:00:00Z/5"
BODIES = {
    "activate": {"model_name": "m", "artifact_url": "hf://m", "engine": "none"},
    "deactivate": {"model_name": "m"},
    "kv-limit": {"model_name": "m", "limit_bytes": 1, "operation_id": "o"},
    "sleep": {"model_name": "m", "level": 1, "operation_id": "o"},
    "wake": {"model_name": "m", "operation_id": "o"},
}


@pytest.fixture
def call(tmp_path):
    app = create_app(
        RuntimeSettings(
            engine_host="127.0.0.1",
            engine_python="/bin/true",
            engine_registry_path=tmp_path / "engines.json",
            weight_cache_dir=tmp_path,
            kv_segment_dir=tmp_path,
        )
    )
    with asgi.get_client(app) as client:

        def send(action, term):
            headers = {} if term is None else {TERM_HEADER: term}
            if action == "snapshot":
                return client.get("/v1/runtime/snapshot", headers=headers)
            return client.post(f"/v1/runtime/models/{action}", json=BODIES[action], headers=headers)

        yield send


@pytest.mark.parametrize("action", BODIES)
def test_a_reading_of_the_new_leader_shuts_the_old_one_out(call, action):
    assert call("snapshot", NEW).status_code == 200
    answer = call(action, OLD)
    assert answer.status_code == 409
    assert OLD in answer.json()["detail"]
    assert NEW in answer.json()["detail"]


def test_the_old_one_may_still_read(call):
    call("snapshot", NEW)
    assert call("snapshot", OLD).status_code == 200


@pytest.mark.parametrize("term", [None, NEW, "2026-11-29T09:00:00Z/0"])
def test_calls_without_a_term_and_with_a_later_one_are_done(call, term):
    call("snapshot", NEW)
    assert call("deactivate", term).status_code == 200


@pytest.mark.parametrize("action", ["snapshot", *BODIES])
def test_a_term_that_cannot_be_read_is_unprocessable(call, action):
    answer = call(action, "yesterday")
    assert answer.status_code == 422
    assert "is no term" in answer.json()["detail"][0]["msg"]
