"""What the chart's dashboard asks."""

from __future__ import annotations

import json
import re
from pathlib import Path

FILE = Path(__file__).parents[1] / "charts" / "aibrix-operator" / "files" / "dashboards" / "aibrix-operator.json"
_VARIABLES = {"$namespace": ".*", "$model": ".*", "$__rate_interval": "1m"}


def board():
    return json.loads(FILE.read_text())


def panels():
    """All panels that ask something."""
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


def queries():
    """(title of the panel, expression as Prometheus gets it, every variable on *All*)."""
    return [(panel["title"], filled(target["expr"])) for panel in panels() for target in panel["targets"]]


def filled(expression):
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, f"{expression} has a variable that the dashboard does not set"
    return expression


def metrics_of(expression):
    """The families that an expression asks for."""
    found = re.findall(r"\b(?:aibrix[_:]|gateway_|model_replicas)\w*", expression)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}
