"""Generated calls against the OpenAPI document: no status, content type or body that it does not name."""

import subprocess
import sys

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from aibrix_operator.artifacts import fetching
from aibrix_operator.runtime import adapter_engine
from aibrix_operator.runtime.app import create_app
from aibrix_operator.runtime.settings import RuntimeSettings

NOBODY = "http://127.0.0.1:9"
"""Where generated calls look for engines and artifacts."""
DOCUMENTED = [status_code_conformance, content_type_conformance, response_schema_conformance]
CALLS = [
    "GET /healthz",
    "GET /ready",
    "GET /metrics/",
    "GET /v1/runtime/snapshot",
    "GET /v1/runtime/changes",
    "GET /v1/runtime/models",
    "GET /v1/models",
    "GET /v1/model/list",
    "POST /v1/model/download",
    "POST /v1/lora_adapter/load",
    "POST /v1/lora_adapter/unload",
    *(f"POST /v1/runtime/models/{action}" for action in ("activate", "deactivate", "kv-limit", "sleep", "wake")),
]


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    directory = tmp_path_factory.mktemp("openapi")
    patches = pytest.MonkeyPatch()
    patches.setattr(adapter_engine, "PAUSE_S", 0.0)
    patches.setattr(fetching, "_FIRST_PAUSE_S", 0.0)
    patches.setenv("HF_ENDPOINT", NOBODY)
    for name in ("AWS_ENDPOINT_URL", "GOOGLE_BASE_URL"):
        patches.setenv(name, NOBODY)
    app = create_app(
        RuntimeSettings(
            engine_host="127.0.0.1",
            engine_python="/bin/true",
            engine_registry_path=directory / "engines.json",
            weight_cache_dir=directory,
            kv_segment_dir=directory,
            adapter_dir=directory / "adapters",
            download_dir=directory / "models",
            inference_engine_endpoint=NOBODY,
            runtime_docs=True,
        )
    )
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    with asgi.get_client(app) as client:  # the app lives as long as this process, its engines need not
        for model in client.get("/v1/runtime/models").json()["models"]:
            client.post("/v1/runtime/models/deactivate", json={"model_name": model["model_name"]})
    patches.undo()


@pytest.mark.parametrize("label", CALLS)
def test_every_answer_is_documented(documented, label):
    (operation,) = [found.ok() for found in documented.get_all_operations() if found.ok().label == label]

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy())
    def call(case):
        case.call_and_validate(checks=DOCUMENTED)

    call()


def test_every_call_is_generated(documented):
    assert {found.ok().label for found in documented.get_all_operations()} == set(CALLS)


def test_every_control_call_names_its_statuses():
    paths = create_app(RuntimeSettings()).openapi()["paths"]
    statuses = {
        path.rpartition("/")[2]: set(item["post"]["responses"])
        for path, item in paths.items()
        if "post" in item and path.startswith("/v1/runtime")
    }
    assert statuses == {
        "activate": {"200", "400", "401", "409", "422", "500"},
        "deactivate": {"200", "400", "401", "409", "422", "500"},
        "kv-limit": {"200", "400", "401", "404", "409", "422", "500"},
        "sleep": {"200", "400", "401", "404", "409", "422", "500"},
        "wake": {"200", "400", "401", "404", "409", "422", "500"},
    }


def test_the_sidecar_starts_without_a_kubernetes_client():
    code = "import sys, aibrix_operator.runtime.app; print(sorted({'kopf', 'kubernetes'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "[]\n"
