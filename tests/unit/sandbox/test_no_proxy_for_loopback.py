"""What a process of a sandbox is told about proxies."""

from __future__ import annotations

from aibrix_operator.sandbox import connection


def test_loopback_joins_what_the_user_exempts_in_both_spellings(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "corp.example,127.0.0.1")
    monkeypatch.setenv("no_proxy", "lab.example")
    environment = connection.environment()
    assert environment["NO_PROXY"] == environment["no_proxy"] == "corp.example,127.0.0.1,lab.example,localhost"


def test_the_rest_of_the_environment_is_handed_on(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert connection.environment()["HTTPS_PROXY"] == "http://proxy.example:3128"
