"""`helm upgrade` from a lower version of the chart, whose definition of a ModelClaim was another one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aibrix_operator import __version__
from e2e import pool as words
from e2e.api import ApiServer, Refused, eventually
from e2e.cluster.asking import Client
from e2e.cluster.release import CHART, NAMESPACE, POOLS, TOKEN_SECRET, VALUES, Releases
from e2e.cluster.warm_pool import WarmPool
from e2e.nodes.provider import Cluster

_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/modelclaims.model.aibrix.ai"
_NEW_FIELD = "engineConfig"
_NEW_COLUMN = "Why"


@pytest.fixture
def older_chart(tmp_path: Path) -> Path:
    """The chart at version 0.1.0, before ModelClaims had `engineConfig` and the column `Why`."""
    older = tmp_path / "aibrix-operator"
    shutil.copytree(CHART, older)
    meta = yaml.safe_load((older / "Chart.yaml").read_text())
    (older / "Chart.yaml").write_text(yaml.safe_dump({**meta, "version": "0.1.0", "appVersion": "0.1.0"}))
    file = older / "files/crds/model.aibrix.ai_modelclaims.yaml"
    definition = yaml.safe_load(file.read_text())
    (version,) = definition["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    version["additionalPrinterColumns"] = [c for c in columns if c["name"] != _NEW_COLUMN]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"][_NEW_FIELD]
    rules = spec.get("x-kubernetes-validations", [])
    spec["x-kubernetes-validations"] = [rule for rule in rules if _NEW_FIELD not in str(rule)]
    file.write_text(yaml.safe_dump(definition))
    return older


@pytest.fixture
def upgraded_from(releases: Releases, older_chart: Path, api: ApiServer) -> Iterator[WarmPool]:
    """Given: the older chart, installed where none was, and a pool."""
    if releases.is_installed:
        releases.uninstall()
    releases.install(older_chart, image={**VALUES["image"], "tag": __version__})
    pool = WarmPool.create(api, "upgraded", replicas=1)
    yield pool
    pool.remove()
    releases.uninstall()


def test_an_upgrade_changes_definitions_and_leaves_engines_and_token_alone(
    api: ApiServer, releases: Releases, cluster: Cluster, upgraded_from: WarmPool
):
    pool = upgraded_from
    assert _columns(api) & {_NEW_COLUMN} == set()
    pool.apply("old", "old-model", engineConfig={"args": {"--max-model-len": "1024"}})
    before = pool.wait_active("old")
    assert _NEW_FIELD not in before["spec"]
    token = _token(api)
    (pod,) = pool.wait_ready(1)
    releases.wait_available()
    pods_before = {p["metadata"]["name"] for c in ("operator", "gateway") for p in releases.pods(c)}
    gateway = releases.gateway()
    eventually("the gateway answers", lambda: gateway.chat("old-model").status == 200, 60.0)

    with Client(gateway, "old-model") as client:
        releases.install(CHART)
        releases.wait_available()

    assert client.asked > 20
    assert client.failed == []
    pods_after = {p["metadata"]["name"] for c in ("operator", "gateway") for p in releases.pods(c)}
    assert not pods_before & pods_after
    assert _columns(api) >= {_NEW_COLUMN}
    assert _token(api) == token
    after = pool.claim("old")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (words.phase(after), after["status"]["instances"]) == ("Active", before["status"]["instances"])
    (same,) = pool.pods()
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0
    # The definition is the new one, also in what it asks and refuses.
    with pytest.raises(Refused, match="engineConfig"):
        pool.apply("bad", "bad-model", engineConfig={"args": "--max-model-len 1024"})
    pool.apply("new", "new-model", engineConfig={"args": {"--max-model-len": "1024"}})
    assert pool.wait_active("new")["spec"][_NEW_FIELD] == {"args": {"--max-model-len": "1024"}}
    eventually("the gateway answers", lambda: gateway.chat("new-model").status == 200)


def _columns(api: ApiServer) -> set[str]:
    (version,) = api.get(_DEFINITION)["spec"]["versions"]
    return {column["name"] for column in version["additionalPrinterColumns"]}


def _token(api: ApiServer) -> list[Any]:
    return [api.get(f"/api/v1/namespaces/{ns}/secrets/{TOKEN_SECRET}")["data"] for ns in (NAMESPACE, POOLS)]
