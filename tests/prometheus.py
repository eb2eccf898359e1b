"""A real Prometheus for tests: scrapes what it is told to, and is asked over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

WITHIN_S = 60.0
_TRIES = 3


def find():
    """Its path. Skips the test, aloud, where there is none."""
    named = os.environ.get("AIBRIX_PROMETHEUS") or shutil.which("prometheus")
    if named is None:
        pytest.skip("no prometheus: install it (Debian: apt-get install prometheus), or name it in AIBRIX_PROMETHEUS")
    return named


class Prometheus:
    """One that runs."""

    def __init__(self, url, process, log):
        self.url = url
        self._process = process
        self._log = log

    def ask(self, path, **query):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """(labels, value) of each series; AssertionError when Prometheus takes it for no query."""
        try:
            found = self.ask("query", query=expression)
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{expression}: {refused.read().decode()}") from None
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def listens(self):
        """Whether it has come up; False when somebody else has its port."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=10):
                return True
            if self._process.poll() is not None:
                said = self._log.read_text()
                assert "address already in use" in said, said
                return False
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def until(self, is_so, what):
        """Wait until ``is_so()``."""
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, f"never: {what}\n{self.ask('targets', state='active')}"
            time.sleep(0.2)

    def are_up(self, count):
        """Whether ``count`` targets answer."""
        return sum(value for _, value in self.query("up")) == count


@contextlib.contextmanager
def scraping(folder, jobs):
    """One that scrapes ``jobs``: job → (metrics path, targets). Every second: rates come soon."""
    program = find()
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {"job_name": job, "metrics_path": path, "static_configs": [{"targets": targets}]}
            for job, (path, targets) in jobs.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    for attempt in range(_TRIES):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        with _running(program, folder, address, folder / f"prometheus-{attempt}.log") as server:
            if server.listens():
                yield server
                return
    raise AssertionError(f"somebody else was quicker {_TRIES} times to listen on a port that was free")


@contextlib.contextmanager
def _running(program, folder, address, log):
    command = [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with log.open("w") as output:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=output, stderr=output)
        try:
            yield Prometheus(f"http://{address}", process, log)
        finally:
            process.terminate()
            process.wait(30)
