"""Which version this is."""

from typer.testing import CliRunner

import aibrix_operator
from aibrix_operator import cli


def test_the_command_line_tells_the_packages_version():
    told = CliRunner().invoke(cli.app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"{aibrix_operator.__version__}\n")


def test_the_help_of_the_whole_says_what_it_is_for():
    told = CliRunner().invoke(cli.app, ["--help"])
    assert told.exit_code == 0
    assert "Let many language models share few GPUs on Kubernetes." in told.output
