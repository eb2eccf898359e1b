"""An operator that is there before its definitions, as in an upgrade that brings them later."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from aibrix_operator import definitions
from aibrix_operator.cluster import errors
from aibrix_operator.cluster.client import Cluster
from aibrix_operator.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, MODEL_CLAIMS, MODEL_WARMUPS
from aibrix_operator.sandbox import binaries, control_plane

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def plane(tmp_path):
    programs = binaries.find_binaries((binaries.ETCD, binaries.API_SERVER), report=print)
    made = control_plane.start_control_plane(tmp_path, programs, with_controllers=False, dies_with_parent=True)
    yield made
    made.stop()


@pytest.fixture
async def cluster(plane):
    async with await Cluster.connect(plane.kubeconfig) as connected:
        yield connected
    await asyncio.sleep(0.1)  # connections that were cut end their TLS in a later turn of the loop, and tell nobody


class Operator:
    """One process with probes."""

    def __init__(self, plane, log, *more):
        port = control_plane.free_port()
        self.log = log
        self._probes = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "aibrix_operator.cli", "operator", "--kubeconfig", str(plane.kubeconfig)]
        command += ["--liveness", f"{self._probes}/healthz", *more]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "USER": "tester"})

    def says(self):
        """(status, body) of readiness; (0, {}) while nobody answers."""
        try:
            with urllib.request.urlopen(f"{self._probes}/readyz", timeout=2) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, {}

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)


@pytest.fixture
def start(plane, tmp_path):
    """Start an operator; it ends with the test."""
    started = []

    def start(*more):
        started.append(Operator(plane, tmp_path / "operator.log", *more))
        return started[-1]

    yield start
    for one in started:
        one.stop()


async def until(holds, within_s=40.0):
    async with asyncio.timeout(within_s):
        while not (found := await holds()):  # noqa: ASYNC110  # a process is asked, and tells by no event
            await asyncio.sleep(0.1)
    return found


def definition(kind):
    return next(one for one in definitions.find() if one["spec"]["names"]["kind"] == kind)


def claim(name):
    spec = {"artifactURL": f"/models/{name}", "podSelector": {"matchLabels": {"a": "b"}}}
    kind = {"apiVersion": MODEL_CLAIMS.api_version, "kind": "ModelClaim"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


async def is_served(cluster):
    with contextlib.suppress(errors.NotFound):
        return await cluster.list_all(MODEL_CLAIMS)
    return None


async def status_of(cluster, resource, name):
    with contextlib.suppress(KeyError):
        return (await cluster.get(resource, "default", name))["status"]
    return None


async def test_a_kind_without_definition_is_named_and_the_others_work_until_it_comes(cluster, start):
    await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition("ModelClaim"))
    await until(lambda: is_served(cluster))
    operator = start()

    async def is_ready():
        status, body = await asyncio.to_thread(operator.says)
        return body if status == 200 else None

    body = await until(is_ready)
    assert "modelwarmups" in body["not_installed"]
    assert "modelclaims" not in body["not_installed"]
    await cluster.create(MODEL_CLAIMS, "default", claim("a"))
    await until(lambda: status_of(cluster, MODEL_CLAIMS, "a"))
    await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition("ModelWarmup"))

    async def is_taken_up():
        _, body = await asyncio.to_thread(operator.says)
        return "modelwarmups" not in body.get("not_installed", ())

    await until(is_taken_up)
    spec = {
        "targets": [{"nodes": {"names": ["nowhere"]}}],
        "imagePreload": {"images": [{"image": "i", "command": ["t"]}]},
    }
    warmup = {"apiVersion": MODEL_WARMUPS.api_version, "kind": "ModelWarmup", "metadata": {"name": "w"}, "spec": spec}
    await cluster.create(MODEL_WARMUPS, "default", warmup)
    status = await until(lambda: status_of(cluster, MODEL_WARMUPS, "w"))
    assert status["phase"] == "Failed"
    assert operator.log.read_text().count("modelwarmups.model.aibrix.ai are not installed") == 1


async def test_an_operator_of_one_namespace_takes_it_up_too(cluster, start):
    operator = start("--namespace", "default")

    async def is_ready():
        status, body = await asyncio.to_thread(operator.says)
        return body if status == 200 else None

    assert "modelclaims" in (await until(is_ready))["not_installed"]
    await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition("ModelClaim"))
    await until(lambda: is_served(cluster))
    await cluster.create(MODEL_CLAIMS, "default", claim("before"))
    await until(lambda: status_of(cluster, MODEL_CLAIMS, "before"))
    # What the first list had is no proof of a watch.
    await cluster.create(MODEL_CLAIMS, "default", claim("after"))
    await until(lambda: status_of(cluster, MODEL_CLAIMS, "after"))
