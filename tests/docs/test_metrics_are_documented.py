"""docs/metrics.md says what the registries hold: every name, type, label and meaning, and nothing else.

``AIBRIX_WRITE_DOCS=1`` writes the tables anew.
"""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import aiohttp
from prometheus_client import CollectorRegistry

from aibrix_operator.gateway.app import Replica
from aibrix_operator.gateway.options import Options
from aibrix_operator.operator import kinds
from aibrix_operator.operator.probes import Probes
from aibrix_operator.runtime import metrics as runtime_metrics
from aibrix_operator.runtime.counters import Counters
from aibrix_operator.runtime.nvml import GpuReading
from aibrix_operator.runtime.observation import Observation

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
SUFFIXES = {"counter": "_total"}
# Ours. Those of AIBrix keep its names, whatever they look like.
PARTS = "operator|controller|modelclaim|modeladapter|modelwarmup|stormservice|gateway|statesync|prefix_cache"
OURS = re.compile(rf"aibrix_({PARTS})_[a-z0-9_]+")
AIBRIX = re.compile(r"aibrix:modelclaim_[a-z_]+|gateway_[a-z0-9_]+|model_replicas")


async def operator():
    """Of every controller that the process hosts, and of the process itself."""
    nothing = dict.fromkeys(("cluster", "writer", "runtimes", "engines", "namespace"))
    hosted = kinds.host(kinds.Parts(**nothing, recorder=SimpleNamespace(dropped=0)))
    probes = Probes("http://127.0.0.1:1/healthz", bool, bool, [])
    registries = {id(r): r for controller in hosted.controllers for r in controller.metrics}
    return sorted({row for registry in (probes.metrics, *registries.values()) for row in _rows(registry)})


async def gateway():
    """With a Redis, which is never called here, so that what replicas share is there too."""
    async with aiohttp.ClientSession() as session:
        return _rows(Replica(Options(redis_url="redis://127.0.0.1:1"), None, session).registry)


def sidecar():
    families = runtime_metrics.page((), Observation(None), GpuReading(), Counters())
    return sorted(_row(family, family._labelnames) for family in families)


def _rows(registry: CollectorRegistry):
    """(name, type, labels, meaning) of all that a registry holds."""
    rows = set()
    for collector in registry._collector_to_names:  # the only place where an instrument's labels are found
        own = getattr(collector, "_labelnames", None)
        for family in collector.collect():
            labels = own if own is not None else getattr(family, "_labelnames", ())
            rows.add(_row(family, labels))
    return sorted(rows)


def _row(family, labels):
    return family.name + SUFFIXES.get(family.type, ""), family.type, tuple(labels), family.documentation.rstrip(".")


def _table(rows):
    lines = ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    for name, kind, labels, text in rows:
        named = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {kind} | {named} | {text} |".replace("|  |", "| |"))
    return "\n".join(lines)


def _with_table(page, part, table):
    begin, end = f"<!-- {part}: written by a test -->", f"<!-- end of {part} -->"
    before, found, rest = page.partition(begin)
    _, also, after = rest.partition(end)
    assert found, f"docs/metrics.md has no place for the {part}'s table: {begin}"
    assert also, f"docs/metrics.md has no end of the {part}'s table: {end}"
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def check(part, rows):
    page = PAGE.read_text()
    wanted = _with_table(page, part, _table(rows))
    if os.environ.get("AIBRIX_WRITE_DOCS"):
        PAGE.write_text(wanted)
    else:
        assert page == wanted, "docs/metrics.md tells of other metrics: AIBRIX_WRITE_DOCS=1 writes its tables anew"
    for name, kind, labels, text in rows:
        assert OURS.fullmatch(name) or AIBRIX.fullmatch(name), f"{name} keeps to no scheme"
        assert (kind == "counter") == name.endswith("_total"), f"{name} is a {kind}"
        assert text, f"{name} says nothing of itself"
        assert len(set(labels)) == len(labels)


async def test_the_operators_metrics_are_documented():
    check("operator", await operator())


def test_the_sidecars_metrics_are_documented():
    check("sidecar", sidecar())


async def test_the_gateways_metrics_are_documented(monkeypatch):
    monkeypatch.delenv("AIBRIX_STATESYNC_ENABLED", raising=False)
    check("gateway", await gateway())
