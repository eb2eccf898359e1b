"""The dashboard as a file: it asks only for what is documented, and is laid out as a person would."""

import itertools
from pathlib import Path

import dashboard

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_it_asks_only_for_metrics_that_are_documented():
    page = PAGE.read_text()
    for title, expression in dashboard.queries():
        asked = dashboard.metrics_of(expression)
        assert asked, f"{title} asks for nothing of ours"
        for name in asked:
            assert f"`{name}`" in page, f"{title} asks for {name}, which docs/metrics.md does not know"


def test_no_two_panels_share_a_number_or_a_place_and_none_hangs_over_the_edge():
    panels = dashboard.board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
    for one, other in itertools.combinations((panel["gridPos"] for panel in panels), 2):
        apart_across = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_down = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_across or apart_down


def test_every_panel_says_its_unit_and_takes_the_data_source_that_is_chosen():
    for panel in dashboard.panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_it_is_an_export_that_any_grafana_can_import():
    board = dashboard.board()
    assert board["uid"] == "aibrix-operator"
    assert "id" not in board, "a number of one Grafana's database"
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "namespace", "model"}
