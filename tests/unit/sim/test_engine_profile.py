"""Profiles of simulated models."""

import json

import pytest

from aibrix_operator.sim.engine import profile


@pytest.fixture
def load(tmp_path):
    def write_and_load(entries, *names):
        path = tmp_path / "profiles.json"
        path.write_text(json.dumps(entries))
        return profile.load(str(path), *names)

    return write_and_load


def test_without_a_file_the_built_in_figures_count():
    assert profile.load(None, "a") == profile.load("", "a") == profile.Profile()


def test_an_entry_lies_over_the_default_which_lies_over_the_built_in_figures(load):
    entries = {"default": {"boot_seconds": 0, "footprint_bytes": "2Gi"}, "a": {"footprint_bytes": 7}}
    loaded = load(entries, "a", "artifact")
    assert (loaded.boot_seconds, loaded.footprint_bytes) == (0, 7)
    assert loaded.max_model_len == profile.Profile().max_model_len


def test_the_served_name_goes_before_the_artifact_and_the_artifact_before_the_default(load):
    entries = {"default": {"kv_page_bytes": 1}, "org/a": {"kv_page_bytes": 2}, "a": {"kv_page_bytes": 3}}
    assert load(entries, "a", "org/a").kv_page_bytes == 3
    assert load(entries, "b", "org/a").kv_page_bytes == 2
    assert load(entries, "b", "org/b").kv_page_bytes == 1


def test_a_pool_may_be_left_to_the_card(load):
    entries = {"default": {"kv_pool_bytes": "80Gi"}, "a": {"kv_pool_bytes": None}}
    assert load(entries, "b").kv_pool_bytes == 80 * 1024**3
    assert load(entries, "a").kv_pool_bytes is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        pytest.param({"colour": 1}, "colour", id="unknown field"),
        pytest.param([], "no field", id="no object"),
        pytest.param({"boot_seconds": "1s"}, "boot_seconds", id="text for a number"),
        pytest.param({"boot_seconds": -1}, "boot_seconds", id="negative"),
        pytest.param({"boot_seconds": True}, "boot_seconds", id="truth value"),
        pytest.param({"boot_seconds": None}, "boot_seconds", id="null"),
        pytest.param({"footprint_bytes": 1.5}, "footprint_bytes", id="fraction of a byte"),
        pytest.param({"footprint_bytes": "6GB"}, "footprint_bytes", id="unknown unit"),
        pytest.param({"tokens_per_second": 0}, "tokens_per_second", id="a model that never answers"),
    ],
)
def test_a_figure_that_can_not_be_is_refused_by_name(load, entry, message):
    with pytest.raises(profile.ProfileError, match=message):
        load({"a": entry}, "a")


def test_an_unreadable_file_is_refused(tmp_path, load):
    with pytest.raises(profile.ProfileError, match="expected an object"):
        load([], "a")
    with pytest.raises(profile.ProfileError, match=r"missing\.json"):
        profile.load(str(tmp_path / "missing.json"), "a")
