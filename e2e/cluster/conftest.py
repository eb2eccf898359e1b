"""One cluster of real nodes for all stories of this folder; each story has namespaces of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.api import ApiServer
from e2e.cluster import images, warm_pool
from e2e.cluster.release import Releases
from e2e.cluster.warm_pool import WarmPool
from e2e.nodes import provider
from e2e.nodes.provider import Cluster

NODES = ("node-a", "node-b")
GPUS_PER_NODE = 6
FIRST_STORY_WITHIN_S = 900
LAST = ("test_uninstallation", "test_upgrade", "test_what_the_stories_asked")


@dataclass(frozen=True)
class FirstInstall:
    pool: WarmPool
    seconds: float
    """From `helm install` to the first Active claim."""
    busy: float
    """How many others waited for each core before it, over five minutes; at least 1."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever story comes first waits for images to be built and imported; those that end the release come last."""
    places = [n for n, item in enumerate(items) if item.path.is_relative_to(Path(__file__).parent)]
    ours = sorted((items[n] for n in places), key=lambda item: item.path.stem in LAST)
    for place, item in zip(places, ours, strict=True):
        items[place] = item
        item.add_marker(pytest.mark.timeout(FIRST_STORY_WITHIN_S), append=False)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        made = provider.start(NODES)
    except provider.NoNodesError as error:
        pytest.skip(f"no real nodes here: {error}")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[ApiServer]:
    server = ApiServer(cluster.kubeconfig)
    yield server
    server.close()


@pytest.fixture(scope="session")
def releases(cluster: Cluster, api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """Helm, on a cluster whose nodes have the images and say that they have GPUs."""
    for archive in images.archives():
        cluster.load(archive)
    warm_pool.advertise_gpus(api, [*cluster.nodes], GPUS_PER_NODE)
    return Releases(cluster, api, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def first_install(releases: Releases, api: ApiServer) -> FirstInstall:
    """Given: `helm install`, a warm pool and a claim applied right behind it, and how long until it was Active."""
    busy = max(1.0, os.getloadavg()[1] / (os.cpu_count() or 1))
    started = time.monotonic()
    releases.install()
    pool = WarmPool.create(api, "demo", replicas=2)
    pool.apply("first", "first-model")
    pool.wait_active("first", 300.0)
    return FirstInstall(pool, time.monotonic() - started, busy)
