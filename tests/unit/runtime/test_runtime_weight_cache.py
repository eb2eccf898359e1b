"""Weight-cache markers: a hint that never fails anything."""

import json

import pytest

from aibrix_operator.runtime import weight_cache


def test_markers_are_listed_sorted_and_once(tmp_path):
    for name, url in (("a", "hf://z"), ("b", "hf://y"), ("c", "hf://z")):
        weight_cache.write_marker(tmp_path, name, url)
    assert weight_cache.cached_artifacts(tmp_path) == ("hf://y", "hf://z")
    marker = json.loads((tmp_path / ".aibrix/served/a.json").read_text())
    assert marker == {"model_name": "a", "artifact_url": "hf://z"}


@pytest.mark.parametrize(
    "content",
    ["", "[", "[]", "{}", '{"artifact_url":7}', '{"artifact_url":""}', '{"artifact_url":"\\ud800"}', "[" * 100_000],
)
def test_broken_markers_are_passed_over(tmp_path, content):
    weight_cache.write_marker(tmp_path, "a", "hf://a")
    (weight_cache.markers_dir(tmp_path) / "b.json").write_text(content)
    assert weight_cache.cached_artifacts(tmp_path) == ("hf://a",)


@pytest.mark.parametrize("name", ["org/m", "../../up", "x" * 300, "nul\0"])
def test_names_that_are_no_file_names_leave_no_marker(tmp_path, name):
    weight_cache.write_marker(tmp_path, name, "hf://a")
    assert weight_cache.cached_artifacts(tmp_path) == ()
    assert not list(tmp_path.rglob("*.json"))


def test_no_cache_is_an_empty_one(tmp_path):
    assert weight_cache.cached_artifacts(tmp_path / "none") == ()
