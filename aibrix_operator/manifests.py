"""Write ``crds/`` from the models in ``api``: ``python -m aibrix_operator.manifests [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from aibrix_operator.api import modelclaim, schema

KINDS = (modelclaim.MODELCLAIM,)
HEADER = "# Written by `make manifests` from aibrix_operator/api; edit there.\n"


def render(kind: schema.Kind) -> str:
    """The CRD of ``kind`` as YAML, the same text for the same models."""
    definition = schema.custom_resource_definition(kind)
    return HEADER + yaml.safe_dump(definition, sort_keys=False, allow_unicode=True, width=120)


def path_of(kind: schema.Kind, folder: Path) -> Path:
    """Where ``kind``'s manifest lies in ``folder``, named as controller-gen names it."""
    return folder / f"{kind.group}_{kind.plural}.yaml"


def main() -> int:
    """Write the manifests, or with ``--check`` name those that differ and return 1."""
    folder = Path(__file__).parent.parent / "crds"
    wanted = {path_of(kind, folder): render(kind) for kind in KINDS}
    if "--check" in sys.argv[1:]:
        stale = [p for p, text in wanted.items() if not p.is_file() or p.read_text() != text]
        for path in stale:
            print(f"{path.name} differs from the models in aibrix_operator/api: run `make manifests`", file=sys.stderr)
        return 1 if stale else 0
    folder.mkdir(exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
