"""Options in groups are one flat command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from aibrix_operator import option_groups


@dataclass(frozen=True, kw_only=True)
class Where:
    port: Annotated[int, typer.Option(envvar="TEST_PORT", help="Where.")] = 80
    host: Annotated[str, typer.Option()] = "::"


@dataclass(frozen=True, kw_only=True)
class How:
    is_fast: Annotated[bool, typer.Option("--fast")] = False


@pytest.fixture
def asked():
    """``asked(*words, **environ)``: the groups that the command gets."""
    seen = []
    app = typer.Typer()

    @app.command()
    @option_groups.flattened
    def serve(where: Where, how: How) -> None:
        """Serves."""
        seen.append((where, how))

    def run(*words, **environ):
        done = CliRunner().invoke(app, words, env=environ)
        return seen.pop() if done.exit_code == 0 and seen else done.output

    return run


def test_without_words_every_group_has_its_defaults(asked):
    assert asked() == (Where(), How())


def test_words_and_the_environment_reach_their_group(asked):
    assert asked("--fast", "--host", "h", TEST_PORT="5") == (Where(port=5, host="h"), How(is_fast=True))


def test_help_is_the_commands_and_its_options(asked):
    told = asked("--help")
    assert "Serves." in told
    assert "TEST_PORT" in told


def test_what_is_no_value_is_refused_by_its_option(asked):
    assert "--port" in asked("--port", "x")
