"""Settings: names in the environment, bounds, and where engines are reached."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from aibrix_operator.runtime.settings import RuntimeSettings, SleepMode


def test_environment_names(monkeypatch):
    for name, value in {
        "RUNTIME_HOST": "127.0.0.9",
        "RUNTIME_PORT": "18080",
        "RUNTIME_DOCS": "true",
        "RUNTIME_TOKEN_FILE": "/t",
        "ENGINE_HOST": "127.0.0.8",
        "ENGINE_PORT_FIRST": "21000",
        "ENGINE_PORT_LAST": "21009",
        "ENGINE_PYTHON": "/py",
        "ENGINE_SLEEP_MODE": "off",
        "ENGINE_STOP_GRACE_SECONDS": "2.5",
        "ENGINE_REGISTRY_PATH": "/r.json",
        "KV_SEGMENT_DIR": "/shm",
        "WEIGHT_CACHE_DIR": "/cache",
        "ADAPTER_DIR": "/adapters",
        "ADAPTER_CREDENTIALS_DIR": "/secrets",
        "SOMETHING_ELSE": "x",
    }.items():
        monkeypatch.setenv(f"AIBRIX_{name}", value)
    for name, value in {
        "DOWNLOADER_LOCAL_DIR": "/models",
        "INFERENCE_ENGINE": "sglang",
        "INFERENCE_ENGINE_ENDPOINT": "http://localhost:9",
        "INFERENCE_ENGINE_API_KEY": "k",
    }.items():
        monkeypatch.setenv(name, value)
    assert RuntimeSettings() == RuntimeSettings(
        runtime_host="127.0.0.9",
        runtime_port=18_080,
        runtime_docs=True,
        runtime_token_file=Path("/t"),
        engine_host="127.0.0.8",
        engine_port_first=21_000,
        engine_port_last=21_009,
        engine_python="/py",
        engine_sleep_mode=SleepMode.OFF,
        engine_stop_grace_seconds=2.5,
        engine_registry_path=Path("/r.json"),
        kv_segment_dir=Path("/shm"),
        weight_cache_dir=Path("/cache"),
        adapter_dir=Path("/adapters"),
        adapter_credentials_dir=Path("/secrets"),
        download_dir=Path("/models"),
        inference_engine="sglang",
        inference_engine_endpoint="http://localhost:9",
        inference_engine_api_key="k",
    )


@pytest.mark.parametrize(
    ("host", "probed"), [("0.0.0.0", "127.0.0.1"), ("127.5.0.3", "127.5.0.3"), ("::", "127.0.0.1"), ("::1", "::1")]
)
def test_engines_are_probed_where_they_listen(host, probed):
    assert RuntimeSettings(engine_host=host).probe_host == probed


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine_port_first": 21_000, "engine_port_last": 20_000},
        {"runtime_port": 0},
        {"engine_stop_grace_seconds": -1},
        {"engine_sleep_mode": "maybe"},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValidationError):
        RuntimeSettings(**wrong)
