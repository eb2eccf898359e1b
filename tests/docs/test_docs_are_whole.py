"""Every reason has its entry, every command exists, and every page is in the site's table of contents."""

import enum
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

import aibrix_operator.api
from aibrix_operator import cli
from aibrix_operator.plugin import command as plugin

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
TOOLS = {"aibrix-operator": typer.main.get_command(cli.app), "kubectl aibrix": typer.main.get_command(plugin.app)}
FENCE = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def reasons():
    """(module, reason) of everything that a condition or an Event may give as its reason."""
    found = []
    for module in pkgutil.iter_modules(aibrix_operator.api.__path__):
        members = vars(importlib.import_module(f"aibrix_operator.api.{module.name}"))
        kinds = [k for n, k in members.items() if n.endswith("Reason") and isinstance(k, enum.EnumMeta)]
        found += [(module.name, reason) for kind in kinds if kind.__module__.endswith(module.name) for reason in kind]
    return found


def test_every_reason_of_every_kind_has_its_entry_in_the_guide():
    page = (DOCS / "troubleshooting.md").read_text()
    missing = [f"{module}: {reason}" for module, reason in reasons() if f"`{reason}`" not in page]
    assert not missing, f"docs/troubleshooting.md says nothing of {missing}"


def commands(text):
    """What a page tells to type that is one of our tools: words of one line, continued lines joined."""
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ").strip()
            for tool in TOOLS:
                start = re.match(rf"(?:\S*/)?{tool} ", line)
                if start:
                    yield tool, shlex.split(line[start.end() :].partition(" | ")[0], comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_of_a_page_exists(page):
    for tool, words in commands(page.read_text()):
        command = TOOLS[tool]
        rest = list(words)
        while rest and rest[0] in getattr(command, "commands", ()):
            command = command.commands[rest.pop(0)]
        assert rest == [] or not hasattr(command, "commands"), f"{page.name}: {tool} has no {' '.join(words)}"
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        for word in rest:
            if word.startswith("-") and word != "-":
                assert word.partition("=")[0] in known, f"{page.name}: {tool} {' '.join(words)} knows no {word}"


def test_every_page_is_in_the_sites_table_of_contents():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = set(re.findall(r"[\w/.-]+\.md", yaml.safe_dump(site["nav"])))
    left_out = set(site["exclude_docs"].split())
    there = {page.name for page in DOCS.glob("*.md")}  # those of reference/ are found by the site itself
    assert there - left_out == listed
