"""What the command line and the environment make of a gateway's options."""

import pytest
from typer.testing import CliRunner

from aibrix_operator.cli import app
from aibrix_operator.gateway import app as gateway_app
from aibrix_operator.gateway.command import redis_of
from aibrix_operator.gateway.limits.users import Mode, Policy


@pytest.fixture
def options_of(monkeypatch):
    """``options_of(*words, **environ)``: what the process would be started with."""
    seen = []

    async def serve(options):
        seen.append(options)

    monkeypatch.setattr(gateway_app, "serve", serve)
    for name in ("POD_NAME", "REDIS_HOST", "ROUTING_ALGORITHM"):
        monkeypatch.delenv(name, raising=False)

    def run(*words, **environ):
        done = CliRunner().invoke(app, ["gateway", *words], env=environ)
        assert done.exit_code == 0, done.output
        return seen.pop()

    return run


def refused(*words):
    done = CliRunner().invoke(app, ["gateway", *words])
    assert done.exit_code == 2
    return done.output


def test_by_default_a_gateway_works_from_memory_and_names_no_strategy(options_of):
    options = options_of()
    assert (options.redis_url, options.default_strategy, options.scope.namespace) == (None, None, None)
    assert (options.users_mode, options.redis_away) == (Mode.OPTIONAL, Policy.LOCAL)
    assert str(options.api) == "0.0.0.0:8080"
    assert str(options.envoy.api) == "127.0.0.1:8080", "Envoy reaches it over loopback"
    assert str(options.envoy.listen) == "0.0.0.0:10080"


def test_aibrixs_variables_are_understood(options_of):
    options = options_of(
        ROUTING_ALGORITHM=" random ",
        AIBRIX_GATEWAY_TIMEOUT_SECONDS="120",
        AIBRIX_POD_METRIC_REFRESH_INTERVAL_MS="250",
        AIBRIX_TTFT_THRESHOLD_S="2.5",
        POD_NAME="gateway-7",
        REDIS_HOST="redis",
        REDIS_PASSWORD="p@ss:word",
    )
    assert options.default_strategy == "random"
    assert options.envoy.timeout_s == 120
    assert (options.scrape_period_s, options.slow_first_token_s) == (0.25, 2.5)
    assert (options.name, options.envoy.node_id) == ("gateway-7", "gateway-7")
    assert options.redis_url == "redis://:p%40ss%3Aword@redis:6379/0"


def test_an_empty_strategy_is_none(options_of):
    assert options_of(ROUTING_ALGORITHM="").default_strategy is None


def test_an_option_wins_over_the_environment(options_of):
    options = options_of("--redis-url", "redis://other:1/0", "--api", "[::]:9", REDIS_HOST="redis")
    assert options.redis_url == "redis://other:1/0"
    assert (str(options.api), str(options.envoy.api)) == ("[::]:9", "[::1]:9")


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, None),
        ({"REDIS_HOST": " "}, None),
        ({"REDIS_HOST": "r", "REDIS_PORT": "7"}, "redis://r:7/0"),
    ],
)
def test_redis_is_named_by_its_host(environ, url):
    assert redis_of(environ) == url


@pytest.mark.parametrize(
    "words",
    [("--listen", "nowhere"), ("--users-mode", "maybe"), ("--redis-away", "panic"), ("--scrape-interval", "5")],
)
def test_what_cannot_be_is_refused_by_its_option(words):
    assert words[0] in refused(*words)


def test_a_gateway_that_cannot_start_says_why(monkeypatch, tmp_path):
    empty = tmp_path / "key"
    empty.write_text("\n")

    async def serve(options):
        gateway_app._keys(options)

    monkeypatch.setattr(gateway_app, "serve", serve)
    done = CliRunner().invoke(app, ["gateway", "--key-file", str(empty)])
    assert done.exit_code == 1
    assert f"error: {empty}: it is empty" in done.output
    done = CliRunner().invoke(app, ["gateway", "--key-file", str(empty), "--keys-file", str(empty)])
    assert "exclude each other" in done.output


def test_a_url_with_a_password_comes_from_a_file(options_of, tmp_path):
    file = tmp_path / "url"
    file.write_text("redis://:secret@redis:6379/0\n")
    assert options_of("--redis-url-file", str(file)).redis_url == "redis://:secret@redis:6379/0"


def test_an_empty_file_is_no_url_and_two_urls_are_one_too_many(tmp_path):
    file = tmp_path / "url"
    file.write_text("\n")
    assert "is empty" in refused("--redis-url-file", str(file))
    assert "exclude each other" in refused("--redis-url-file", str(file), "--redis-url", "redis://other:1/0")


def test_a_certificate_needs_its_key(options_of):
    assert "each needs the other" in refused("--tls-certificate", "/tls/tls.crt")
    tls = options_of("--tls-certificate", "/tls/tls.crt", "--tls-key", "/tls/tls.key").envoy.tls
    assert (str(tls.certificate), str(tls.key)) == ("/tls/tls.crt", "/tls/tls.key")


def test_configuring_writes_envoys_files_and_starts_nothing(tmp_path):
    config = tmp_path / "envoy.json"
    words = ["--configure", "--envoy-config", str(config), "--tls-certificate", "/t/c", "--tls-key", "/t/k"]
    done = CliRunner().invoke(app, ["gateway", *words])
    assert done.exit_code == 0, done.output
    assert str(tmp_path / "tls.json") in config.read_text()
    assert '"/t/k"' in (tmp_path / "tls.json").read_text()
    assert "needs --envoy-config" in refused("--configure")
