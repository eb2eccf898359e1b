"""What the site's generator does not do by itself."""

import re
from pathlib import Path
from typing import Any

_OUT = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


def on_config(config: Any, **_: Any) -> Any:
    """Reference pages are generated, one a kind, and so is their part of the table of contents."""
    pages = sorted((Path(config.docs_dir) / "reference").glob("*.md"))
    config.nav.append({"Reference": [f"reference/{page.name}" for page in pages]})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of ``docs/`` lead to other files of the repository, which the site has not: they become plain text."""
    return _OUT.sub(r"\1", markdown)
