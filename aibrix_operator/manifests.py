"""Write what is generated: ``python -m aibrix_operator.manifests [--check]``.

``crds/`` and ``docs/reference/`` come from the models in ``api``, as does the chart's copy of the former; the chart's
roles come from the table of grants.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from aibrix_operator import __version__, api_reference, roles
from aibrix_operator.api import modeladapter, modelclaim, modelwarmup, podset, roleset, schema, stormservice
from aibrix_operator.operator.grants import GRANTS

KINDS = (
    modelclaim.MODELCLAIM,
    modelwarmup.MODELWARMUP,
    modeladapter.MODELADAPTER,
    stormservice.STORMSERVICE,
    roleset.ROLESET,
    podset.PODSET,
)
HEADER = "# Written by `make manifests` from aibrix_operator/api; edit there.\n"
GRANTS_HEADER = "# Written by `make manifests` from aibrix_operator/operator/grants.py; edit there.\n"


def render(kind: schema.Kind) -> str:
    """The CRD of ``kind`` as YAML, the same text for the same models."""
    definition = schema.custom_resource_definition(kind)
    return HEADER + yaml.safe_dump(definition, sort_keys=False, allow_unicode=True, width=120)


def path_of(kind: schema.Kind, folder: Path) -> Path:
    """Where ``kind``'s manifest lies in ``folder``, named as controller-gen names it."""
    return folder / f"{kind.group}_{kind.plural}.yaml"


def chart_files(chart: Path) -> dict[Path, str]:
    """What the chart holds of the models, the table of grants and the version. File → its text."""
    wanted = {path_of(kind, chart / "files" / "crds"): render(kind) for kind in KINDS}
    written = yaml.safe_dump(roles.rules(GRANTS), sort_keys=False, width=120)
    wanted[chart / "files" / "grants.yaml"] = f"{GRANTS_HEADER}# {roles.counts(GRANTS)}\n{written}"
    described = chart / "Chart.yaml"
    wanted[described] = _with_version(described.read_text(), __version__)
    return wanted


def _with_version(text: str, version: str) -> str:
    """A Chart.yaml with this release's version, which the package's is the one place of."""
    return re.sub(r"^(version|appVersion): .*$", lambda found: f'{found[1]}: "{version}"', text, flags=re.MULTILINE)


def main() -> int:
    """Write the manifests, or with ``--check`` name those that differ and return 1."""
    checkout = Path(__file__).parent.parent
    wanted = {path_of(kind, checkout / "crds"): render(kind) for kind in KINDS}
    wanted |= {
        checkout / "docs" / "reference" / f"{kind.kind.lower()}.md": api_reference.render(
            schema.custom_resource_definition(kind)
        )
        for kind in KINDS
    }
    wanted |= chart_files(checkout / "charts" / "aibrix-operator")
    if "--check" in sys.argv[1:]:
        stale = [p for p, text in wanted.items() if not p.is_file() or p.read_text() != text]
        for path in stale:
            where = path.relative_to(checkout)
            print(f"{where} differs from what aibrix_operator says: run `make manifests`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
